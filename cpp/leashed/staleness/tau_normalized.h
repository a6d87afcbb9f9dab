// τ-normalisation (docs/readings.md#staleness-and-data-normalisation-swap): 1 / max(1, τ') with
// τ' = δ'(τ + 1 − μ)/δ + μ', which gives staleness here (mean μ, deviation δ) the distribution of a
// baseline cluster (μ', δ'). The short form is τ' = δ'(τ + 1)/δ. μ and δ are given, or measured
// while training goes on.
#pragma once

#include <algorithm>
#include <cmath>

#include "leashed/staleness/policy.h"
#include "leashed/staleness/statistics.h"

namespace leashed {

class TauNormalized final : public StalenessPolicy {
 public:
  // NaN for what is to be measured; a NaN baseline mean for the short form.
  TauNormalized(double mean, double deviation, double baseline_mean, double baseline_deviation)
      : mean_(mean),
        deviation_(deviation),
        baseline_mean_(baseline_mean),
        baseline_deviation_(baseline_deviation) {}

  // The paper's τ is τ + 1, and so is its mean. Without any spread so far τ is its mean.
  double factor(double tau) const override {
    const double deviation = std::isnan(deviation_) ? statistics_.deviation() : deviation_;
    const double scale = deviation > 0 ? baseline_deviation_ / deviation : 0;
    if (std::isnan(baseline_mean_)) return 1 / std::max(1.0, scale * (tau + 1));
    const double mean = std::isnan(mean_) ? statistics_.mean() + 1 : mean_;
    return 1 / std::max(1.0, scale * (tau + 1 - mean) + baseline_mean_);
  }
  void observe(std::uint64_t tau) const override {
    if (measures()) statistics_.add(tau);
  }
  StalenessStatistics* statistics() const override { return measures() ? &statistics_ : nullptr; }

 private:
  bool measures() const {
    return std::isnan(deviation_) || (std::isnan(mean_) && !std::isnan(baseline_mean_));
  }

  const double mean_, deviation_, baseline_mean_, baseline_deviation_;
  mutable StalenessStatistics statistics_;
};

}  // namespace leashed
