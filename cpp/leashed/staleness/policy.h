// A staleness policy: what a gradient is multiplied by for its staleness τ, counted from 0
// (docs/readings.md#words-that-differ). It multiplies the gradient and not the step size
// (extreme-scale-asgd, eq. 8), so momentum and accumulators are not punished for a stale gradient.
#pragma once

#include <cstddef>
#include <cstdint>

namespace leashed {

class StalenessStatistics;

class StalenessPolicy {
 public:
  virtual ~StalenessPolicy() = default;

  // ρ(τ) ≥ 0, for whole τ or, where it is stage-aware, for any real τ ≥ 0 (as printed, ≥ −1/2). 0:
  // the gradient is left out altogether. ρ(0) > 0, so that some gradient always gets through.
  virtual double factor(double tau) const = 0;
  // ρ of each of n, for what has a staleness of its own, such as the rows of a table.
  virtual void factors(const std::uint32_t* tau, std::size_t n, float* factors) const {
    for (std::size_t i = 0; i < n; ++i) {
      factors[i] =
          i > 0 && tau[i] == tau[i - 1] ? factors[i - 1] : static_cast<float>(factor(tau[i]));
    }
  }
  // Whether ρ may be 0.
  virtual bool excludes() const { return false; }

  // The stage-aware transform (eqs. 5, 6): what τ counts as for a variable whose last update had
  // that Euclidean norm; its factor is ρ of it.
  virtual bool stage_aware() const { return false; }
  virtual double staged(double tau, double /*last_update*/) const { return tau; }

  // Told of the staleness of every update applied, by any thread at any time.
  virtual void observe(std::uint64_t /*tau*/) const {}
  // What it has gathered of them, for a checkpoint to keep and to put back; null: nothing.
  virtual StalenessStatistics* statistics() const { return nullptr; }
};

}  // namespace leashed
