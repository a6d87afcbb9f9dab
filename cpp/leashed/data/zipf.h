// Numbers k = 1..n with probabilities ∝ k^−s, for any s > 0: rejection-inversion (Hörmann and
// Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions", ACM
// TOMACS 6, 1996). Exact, without a table, in constant time whatever n is.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

namespace leashed {

class Zipf {
 public:
  // Beyond this, neighbours are no longer told apart in double precision.
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 48;

  // s > 0, 1 <= n <= kMost.
  Zipf(double s, std::uint64_t n)
      : s_(s),
        q_(1 - s),
        n_(static_cast<double>(n)),
        begin_(integral(1.5) - 1),
        end_(integral(n_ + 0.5)),
        surely_(2 - inverse(integral(2.5) - weight(2))) {}

  // k, or nothing where u, uniform in [0, 1), is rejected: then another is to be tried. More than
  // half are taken.
  std::optional<std::uint64_t> operator()(double u) const {
    const double area = end_ + u * (begin_ - end_);  // in (begin, end]
    const double x = inverse(area);
    const auto nearest = static_cast<std::int64_t>(std::min(x, n_) + 0.5);
    const auto k = static_cast<double>(std::max<std::int64_t>(nearest, 1));
    if (k - x <= surely_ || area >= integral(k + 0.5) - weight(k)) {
      return static_cast<std::uint64_t>(k);
    }
    return std::nullopt;
  }

 private:
  double weight(double x) const { return std::exp(-s_ * std::log(x)); }
  // ∫ t^−s dt from 1 to x.
  double integral(double x) const {
    const double log_x = std::log(x);
    return q_ == 0 ? log_x : std::expm1(q_ * log_x) / q_;
  }
  double inverse(double area) const {
    if (q_ == 0) return std::exp(area);
    const double less = std::max(q_ * area, -1.0);
    // log1p takes longer, and is needed where dividing by q makes much of what 1 + less rounds off.
    return std::exp((std::abs(q_) < 0.01 ? std::log1p(less) : std::log(1 + less)) / q_);
  }

  double s_, q_, n_;
  double begin_, end_;  // of the areas that stand for 1..n
  double surely_;       // what is no further below k is taken without looking
};

}  // namespace leashed
