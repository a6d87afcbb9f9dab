// Policies that are functions of τ alone, from extreme-scale-asgd and GBA. Their papers' τ counts
// from 1: it is τ + 1 here.
#pragma once

#include <algorithm>
#include <cmath>

#include "leashed/staleness/policy.h"

namespace leashed {

class Undamped final : public StalenessPolicy {
 public:
  double factor(double) const override { return 1; }
  void factors(const std::uint32_t*, std::size_t n, float* factors) const override {
    std::fill_n(factors, n, 1.0f);
  }
};

// (τ + 1)^−k (extreme-scale-asgd, eq. 4); k = 1: the inverse.
class PowerDamping final : public StalenessPolicy {
 public:
  explicit PowerDamping(double k) : k_(k) {}
  double factor(double tau) const override {
    return k_ == 1 ? 1 / (tau + 1) : std::pow(tau + 1, -k_);
  }

 private:
  const double k_;
};

// 1 up to μ', (μ' / (τ + 1))^k above; as printed, (τ + 1)^−k above
// (docs/readings.md#staleness-and-data-normalisation-swap).
class NormalizedDamping final : public StalenessPolicy {
 public:
  NormalizedDamping(double mu, double k, bool as_printed)
      : mu_(mu), k_(k), scale_(as_printed ? 1 : mu) {}
  double factor(double tau) const override {
    return tau + 1 <= mu_ ? 1 : std::pow(scale_ / (tau + 1), k_);
  }

 private:
  const double mu_, k_, scale_;
};

// 1 up to ι, 0 above (GBA, eq. 1, whose staleness is that of the batch's token).
class Cutoff final : public StalenessPolicy {
 public:
  explicit Cutoff(double iota) : iota_(iota) {}
  double factor(double tau) const override { return tau <= iota_ ? 1 : 0; }
  bool excludes() const override { return true; }

 private:
  const double iota_;
};

}  // namespace leashed
