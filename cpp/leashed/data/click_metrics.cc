#include "leashed/data/click_metrics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace leashed {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Larger for larger floats: negative ones have all bits turned, the others the sign.
std::size_t bin_of(float logit) {
  const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0f);  // −0 is 0
  const std::uint32_t turned = bits >> 31 ? ~bits : bits | 0x80000000;
  return turned >> 16;
}

// Σ log(1 + e) with e in [0, 1], as the logarithm of products: each factor is at most 2.
class LogarithmSum {
 public:
  void add(double e) {
    product_ *= 1 + e;
    if (++factors_ == kFactors) fold();
  }
  double total() {
    fold();
    return sum_;
  }

 private:
  static constexpr int kFactors = 256;

  void fold() {
    sum_ += std::log(product_);
    product_ = 1;
    factors_ = 0;
  }

  double sum_ = 0, product_ = 1;
  int factors_ = 0;
};

}  // namespace

void ClickMetrics::add(std::span<const float> logits, const Targets& targets) {
  double linear = 0, expected = 0, logarithms = 0;
  LogarithmSum unweighted;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double weight = targets.weights ? double{targets.weights[i]} : 1;
    if (weight == 0) continue;  // even an infinite loss
    const bool click = targets.labels[i] == 1;
    const double logit = logits[i];
    // Of the absolute value, so that nothing overflows and infinite logits are right or wrong.
    const double small = std::exp(-std::abs(logit));
    if (targets.weights) {
      logarithms += weight * std::log1p(small);
    } else {
      unweighted.add(small);
    }
    linear += weight * std::max(click ? -logit : logit, 0.0);
    expected += weight * ((logit < 0 ? small : 1) / (1 + small));
    const std::size_t b = bin_of(logits[i]);
    std::vector<Bin>& block = blocks_[b / kBlock];
    if (block.empty()) block.resize(kBlock);
    Bin& bin = block[b % kBlock];
    (click ? bin.clicks : bin.others) += weight;
    (click ? clicks_ : others_) += weight;
  }
  loss_ += linear + logarithms + unweighted.total();
  expected_ += expected;
  rows_ += static_cast<double>(logits.size());
}

void ClickMetrics::merge(const ClickMetrics& other) {
  for (std::size_t k = 0; k < blocks_.size(); ++k) {
    const std::vector<Bin>& from = other.blocks_[k];
    if (blocks_[k].size() < from.size()) blocks_[k].resize(from.size());
    for (std::size_t b = 0; b < from.size(); ++b) {
      blocks_[k][b].clicks += from[b].clicks;
      blocks_[k][b].others += from[b].others;
    }
  }
  rows_ += other.rows_;
  clicks_ += other.clicks_;
  others_ += other.others_;
  loss_ += other.loss_;
  expected_ += other.expected_;
}

void ClickMetrics::clear() {
  for (std::vector<Bin>& block : blocks_) std::ranges::fill(block, Bin());
  rows_ = clicks_ = others_ = loss_ = expected_ = 0;
}

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
  for (const std::vector<Bin>& block : blocks_) {
    for (const Bin& bin : block) {
      ordered += bin.clicks * below;
      tied += bin.clicks * bin.others;
      below += bin.others;
    }
  }
  const double pairs = clicks_ * others_;
  return {std::min((ordered + tied / 2) / pairs, 1.0), tied / 2 / pairs};
}

}  // namespace leashed
