#include "leashed/data/click_metrics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace leashed {
namespace {

constexpr std::size_t kBins = 1 << 16;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Larger for larger floats: negative ones have all bits turned, the others the sign.
std::size_t bin_of(float logit) {
  const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0f);  // −0 is 0
  const std::uint32_t turned = bits >> 31 ? ~bits : bits | 0x80000000;
  return turned >> 16;
}

}  // namespace

ClickMetrics::ClickMetrics() : bins_(kBins) {}

void ClickMetrics::add(std::span<const float> logits, const Targets& targets) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double weight = targets.weights ? double{targets.weights[i]} : 1;
    if (weight == 0) continue;  // even an infinite loss
    const bool click = targets.labels[i] == 1;
    const double logit = logits[i];
    // Of the absolute value, so that nothing overflows and infinite logits are right or wrong.
    const double small = std::exp(-std::abs(logit));
    const double p = (logit < 0 ? small : 1) / (1 + small);
    loss_ += weight * (std::max(click ? -logit : logit, 0.0) + std::log1p(small));
    expected_ += weight * p;
    Bin& bin = bins_[bin_of(logits[i])];
    (click ? bin.clicks : bin.others) += weight;
    (click ? clicks_ : others_) += weight;
  }
  rows_ += static_cast<double>(logits.size());
}

void ClickMetrics::merge(const ClickMetrics& other) {
  for (std::size_t b = 0; b < kBins; ++b) {
    bins_[b].clicks += other.bins_[b].clicks;
    bins_[b].others += other.bins_[b].others;
  }
  rows_ += other.rows_;
  clicks_ += other.clicks_;
  others_ += other.others_;
  loss_ += other.loss_;
  expected_ += other.expected_;
}

void ClickMetrics::clear() { *this = ClickMetrics(); }

double ClickMetrics::log_loss() const { return loss_ / (clicks_ + others_); }

double ClickMetrics::normalised_entropy() const {
  if (clicks_ == 0 || others_ == 0) return kNaN;
  const double p = clicks_ / (clicks_ + others_);
  return log_loss() / -(p * std::log(p) + (1 - p) * std::log1p(-p));
}

double ClickMetrics::calibration() const { return clicks_ == 0 ? kNaN : expected_ / clicks_; }

ClickMetrics::AreaUnderCurve ClickMetrics::area_under_curve() const {
  // A sum that is no number tells of a logit that was none.
  if (clicks_ == 0 || others_ == 0 || std::isnan(expected_)) return {kNaN, kNaN};
  double below = 0;  // non-clicks in lower bins
  double ordered = 0, tied = 0;
  for (const Bin& bin : bins_) {
    ordered += bin.clicks * below;
    tied += bin.clicks * bin.others;
    below += bin.others;
  }
  const double pairs = clicks_ * others_;
  return {(ordered + tied / 2) / pairs, tied / 2 / pairs};
}

}  // namespace leashed
