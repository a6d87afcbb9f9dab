// Policies from other publications, which adapt to the staleness of the run; Python's docstrings
// say which parts of them could be verified
// (docs/readings.md#policies-the-papers-only-name).
#pragma once

#include <math.h>  // lgamma_r

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "leashed/staleness/policy.h"
#include "leashed/staleness/statistics.h"

namespace leashed {

// No gradient is left out for a factor that is too small for a number.
inline double above_0(double factor) {
  return std::max(factor, std::numeric_limits<double>::min());
}

// TAIL-τ (Bäckström et al., ASAP.SGD, ICML 2022): 1 + A (1 − 2 F(τ)), F(τ) the share of updates
// whose staleness was below τ. 1 until `warmup` updates have been seen. At A = 1 what is staler
// than all before it counts nothing, but is an update and so seen: were it left out, F would never
// learn of staleness that grows.
class TailTau final : public StalenessPolicy {
 public:
  TailTau(double amplitude, std::uint64_t warmup) : amplitude_(amplitude), warmup_(warmup) {}
  double factor(double tau) const override {
    if (statistics_.count() < warmup_) return 1;
    return above_0(1 + amplitude_ * (1 - 2 * statistics_.below(tau)));
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
        threshold_ > 0 ? threshold_ : std::max(1.0, statistics_.quantile(percentile_ / 100));
    const double half = threshold / 2;
    return above_0(std::exp(-std::log1p(half) / half * tau));
  }
  void observe(std::uint64_t tau) const override {
    if (threshold_ == 0) statistics_.add(tau);
  }
  StalenessStatistics* statistics() const override {
    return threshold_ == 0 ? &statistics_ : nullptr;
  }

 private:
  const double threshold_, percentile_;
  mutable StalenessStatistics statistics_;
};

// MindTheStep-AsyncPSGD (Bäckström et al., IEEE Big Data 2019), staleness being Poisson of mean λ:
// λ^−τ τ! (1 − κ P[staleness < τ]), at most `bound`. A mean of 0 is measured. Scaled: times the
// number that makes the mean factor of the updates so far 1, the bound included.
class MindTheStep final : public StalenessPolicy {
 public:
  MindTheStep(double mean, double momentum, double bound, bool scaled)
      : mean_(mean), momentum_(momentum), bound_(bound), scaled_(scaled) {}

  double factor(double tau) const override {
    if (!scaled_) return bounded(logarithm(tau, mean()));
    if (statistics_.count() >= due_.load(std::memory_order_relaxed)) rescale();
    const Scale scale = scale_.load(std::memory_order_relaxed);
    return scale.mean < 0 ? 1 : bounded(logarithm(tau, scale.mean) + scale.mean + scale.logarithm);
  }
  void observe(std::uint64_t tau) const override {
    if (measures()) statistics_.add(tau);
  }
  StalenessStatistics* statistics() const override { return measures() ? &statistics_ : nullptr; }

 private:
  // Of the factor without a bound: at a mean of 800 and more it may be no double.
  double logarithm(double tau, double mean) const {
    if (tau <= 0 || mean == 0) return tau <= 0 || momentum_ == 1 ? 0 : kInfinity;
    const double whole = log_gamma(tau + 1) - tau * std::log(mean);
    if (mean >= tau + 1) return whole + std::log1p(-momentum_ * below(tau, mean));
    // As (1 − κ) λ^−τ τ! + κ λ^−τ τ! P[staleness ≥ τ]: 1 − P[staleness < τ] would be a difference
    // of nearly equal numbers.
    const double first = std::log1p(-momentum_) + whole;
    const double second = std::log(momentum_) - mean + std::log(series(tau, mean));
    const double larger = std::max(first, second);
    return larger + std::log1p(std::exp(std::min(first, second) - larger));
  }
  // (std::lgamma writes the sign to a variable of all threads.)
  static double log_gamma(double x) {
    int sign;
    return ::lgamma_r(x, &sign);
  }
  // P[staleness < τ] for λ ≥ τ + 1, as the upper incomplete gamma function Γ(τ, λ) / Γ(τ): its
  // continued fraction from the front (Lentz).
  static double below(double tau, double mean) {
    double b = mean + 1 - tau, c = kInfinity, d = 1 / b, product = d;
    for (double i = 1, step = 0; std::abs(step - 1) > 1e-15; ++i) {
      const double a = -i * (i - tau);
      b += 2;
      c = b + a / c;
      d = 1 / (b + a * d);
      product *= step = c * d;
    }
    return std::exp(tau * std::log(mean) - mean - log_gamma(tau)) * product;
  }
  // e^λ λ^−τ τ! P[staleness ≥ τ] for λ < τ + 1: Σ λ^j τ! / (τ + j)!.
  static double series(double tau, double mean) {
    double sum = 0, term = 1;
    for (double j = 1; term > 1e-17 * sum; ++j) {
      sum += term;
      term *= mean / (tau + j);
    }
    return sum;
  }

  double mean() const { return mean_ > 0 ? mean_ : statistics_.mean(); }
  bool measures() const { return mean_ == 0 || scaled_; }
  double bounded(double logarithm) const { return std::min(above_0(std::exp(logarithm)), bound_); }

  // The mean that factors are taken at and the scale's logarithm less that mean, which is what
  // factors grow smaller by as the mean grows. In one word: the one is worth nothing with another's
  // other. It orders nothing else.
  struct Scale {
    float mean, logarithm;
  };
  // By one of the threads, whenever there are a sixteenth more updates than the last time.
  void rescale() const {
    const std::uint64_t count = statistics_.count();
    std::uint64_t due = due_.load(std::memory_order_relaxed);
    if (count < due ||
        !due_.compare_exchange_strong(due, count + count / 16 + 1, std::memory_order_relaxed)) {
      return;
    }
    Scale scale{static_cast<float>(mean()), 0};
    struct Seen {
      double logarithm, updates;
    };
    std::vector<Seen> seen;
    double updates = 0, least = kInfinity, most = -kInfinity;
    statistics_.for_each([&](double tau, double n) {
      seen.push_back({logarithm(tau, scale.mean) + scale.mean, n});
      updates += n;
      least = std::min(least, seen.back().logarithm);
      most = std::max(most, seen.back().logarithm);
    });
    // The mean factor grows with the scale: from at most 1 to the bound.
    double low = -most, high = std::log(bound_) - least;
    while (high - low > 1e-7) {
      const double middle = (low + high) / 2;
      double sum = 0;
      for (const Seen& s : seen) sum += s.updates * bounded(s.logarithm + middle);
      (sum < updates ? low : high) = middle;
    }
    if (seen.empty()) return;
    scale.logarithm = static_cast<float>(low);
    scale_.store(scale, std::memory_order_relaxed);
  }

  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double mean_, momentum_, bound_;
  const bool scaled_;
  mutable StalenessStatistics statistics_;
  mutable std::atomic<Scale> scale_{{-1, 0}};  // none yet
  mutable std::atomic<std::uint64_t> due_{1};
  static_assert(std::atomic<Scale>::is_always_lock_free);
};

}  // namespace leashed
