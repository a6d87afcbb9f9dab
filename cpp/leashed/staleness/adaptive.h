// Policies from other publications, which adapt to the staleness of the run; Python's docstrings
// say which parts of them could be verified (READINGS, "Policies the papers only name").
#pragma once

#include <algorithm>
#include <cmath>

#include "leashed/staleness/policy.h"
#include "leashed/staleness/statistics.h"

namespace leashed {

// TAIL-τ (Bäckström et al., ASAP.SGD, ICML 2022): 1 + A (1 − 2 F(τ)), F(τ) the share of updates
// whose staleness was below τ. 1 until `warmup` updates have been seen.
class TailTau final : public StalenessPolicy {
 public:
  TailTau(double amplitude, std::uint64_t warmup) : amplitude_(amplitude), warmup_(warmup) {}
  double factor(double tau) const override {
    if (statistics_.count() < warmup_) return 1;
    return 1 + amplitude_ * (1 - 2 * statistics_.below(tau));
  }
  void observe(std::uint64_t tau) const override { statistics_.add(tau); }
  StalenessStatistics* statistics() const override { return &statistics_; }

 private:
  const double amplitude_;
  const std::uint64_t warmup_;
  mutable StalenessStatistics statistics_;
};

// FLeet's AdaSGD (Damaskinos et al., Middleware 2020): e^(−βτ), β such that it meets the inverse
// 1/(τ + 1) at half of τ_thres. A τ_thres of 0 is measured: the percentile of the staleness so far.
class Fleet final : public StalenessPolicy {
 public:
  Fleet(double threshold, double percentile) : threshold_(threshold), percentile_(percentile) {}
  double factor(double tau) const override {
    const double threshold =
        threshold_ > 0
            ? threshold_
            : std::max<double>(1, static_cast<double>(statistics_.quantile(percentile_ / 100)));
    const double half = threshold / 2;
    return std::exp(-std::log1p(half) / half * tau);
  }
  void observe(std::uint64_t tau) const override {
    if (threshold_ == 0) statistics_.add(tau);
  }
  StalenessStatistics* statistics() const override { return &statistics_; }

 private:
  const double threshold_, percentile_;
  mutable StalenessStatistics statistics_;
};

// MindTheStep-AsyncPSGD (Bäckström et al., IEEE Big Data 2019), staleness being Poisson of mean λ:
// λ^−τ τ! (1 − κ P[staleness < τ]), at most `bound`. A mean of 0 is measured.
class MindTheStep final : public StalenessPolicy {
 public:
  MindTheStep(double mean, double momentum, double bound)
      : mean_(mean), momentum_(momentum), bound_(bound) {}

  // As (1 − κ) λ^−τ τ! + κ λ^−τ τ! P[staleness ≥ τ], whose second part is the series below: no
  // difference of nearly equal numbers.
  double factor(double tau) const override {
    const double mean = mean_ > 0 ? mean_ : statistics_.mean();
    double series = 0, term = std::exp(-mean);
    for (int j = 1; term > 1e-17 || j <= mean; ++j) {
      series += term;
      term *= mean / (tau + j);
    }
    double factor = momentum_ * series;
    if (momentum_ < 1 && mean > 0) {
      factor += (1 - momentum_) * std::exp(std::lgamma(tau + 1) - tau * std::log(mean));
    } else if (momentum_ < 1) {
      factor += tau == 0 ? 1 - momentum_ : bound_;
    }
    return std::min(factor, bound_);
  }
  void observe(std::uint64_t tau) const override {
    if (mean_ == 0) statistics_.add(tau);
  }
  StalenessStatistics* statistics() const override { return &statistics_; }

 private:
  const double mean_, momentum_, bound_;
  mutable StalenessStatistics statistics_;
};

}  // namespace leashed
