#include "leashed/data/click_metrics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <new>

namespace leashed {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace

template <class T>
T* ClickMetrics::made(Bins<T>& bins) {
  if (!bins) bins.reset(static_cast<T*>(std::calloc(kPlaces, sizeof(T))));
  if (!bins) throw std::bad_alloc();
  return bins.get();
}

template <class F>
void ClickMetrics::each_place(F f) const {
  for (std::uint32_t left = sums_.blocks; left != 0; left &= left - 1) {
    const auto block = static_cast<std::size_t>(std::countr_zero(left));
    for (std::size_t i = 0; i < kBlock; ++i) f(block * kBlock + i);
  }
}

void ClickMetrics::add(std::span<const float> logits, const Targets& targets) {
  for (std::size_t begin = 0, size; begin < logits.size(); begin += size) {
    if (factors_ == kFactors) fold();
    const std::size_t lanes = kernels_->lanes;
    size = std::min(logits.size() - begin, (kFactors - factors_) * lanes);
    factors_ += (size + lanes - 1) / lanes;
    const float* const from = logits.data() + begin;
    const Targets of = targets.from(begin);
    if (of.weights) {
      kernels_->weigh(from, of.labels, of.weights, size, made(weights_), sums_);
    } else {
      kernels_->count(from, of.labels, size, made(counts_), sums_);
    }
  }
  rows_ += static_cast<double>(logits.size());
}

ClickMetrics::Totals ClickMetrics::totals() const {
  Totals all = folded_;
  for (std::size_t j = 0; j < ScoreSums::kLanes; ++j) {
    all += {sums_.clicks[j], sums_.others[j], sums_.loss[j] + std::log1p(sums_.product[j]),
            sums_.expected[j] + sums_.scaled[j] / (1 + sums_.product[j])};
  }
  return all;
}

void ClickMetrics::fold() {
  folded_ = totals();
  const std::uint32_t blocks = sums_.blocks;
  sums_ = ScoreSums();
  sums_.blocks = blocks;
  factors_ = 0;
}

void ClickMetrics::merge(const ClickMetrics& other) {
  const auto merge_bins = [&other](auto& into, const auto& from) {
    if (!from) return;
    auto* const to = made(into);
    other.each_place([&](std::size_t place) { to[place] += from[place]; });
  };
  merge_bins(counts_, other.counts_);
  merge_bins(weights_, other.weights_);
  sums_.blocks |= other.sums_.blocks;
  rows_ += other.rows_;
  folded_ += other.totals();
}

void ClickMetrics::clear() {
  each_place([this](std::size_t place) {
    if (counts_) counts_[place] = 0;
    if (weights_) weights_[place] = 0;
  });
  rows_ = 0;
  folded_ = Totals();
  sums_ = ScoreSums();
  factors_ = 0;
}

double ClickMetrics::log_loss() const {
  const Totals all = totals();
  return all.loss / (all.clicks + all.others);
}

double ClickMetrics::normalised_entropy() const {
  const Totals all = totals();
  if (all.clicks == 0 || all.others == 0) return kNaN;
  // The smaller share of both: the larger may round to 1.
  const double p = std::min(all.clicks, all.others) / (all.clicks + all.others);
  return log_loss() / -(p * std::log(p) + (1 - p) * std::log1p(-p));
}

double ClickMetrics::calibration() const {
  const Totals all = totals();
  return all.clicks == 0 ? kNaN : all.expected / all.clicks;
}

ClickMetrics::AreaUnderCurve ClickMetrics::area_under_curve() const {
  const Totals all = totals();
  // A sum that is no number tells of a logit that was none.
  if (all.clicks == 0 || all.others == 0 || std::isnan(all.expected)) return {kNaN, kNaN};
  double below = 0, others = 0;  // non-clicks in lower bins, and in this one
  double ordered = 0, tied = 0;
  each_place([&](std::size_t place) {
    const double weight =
        (counts_ ? static_cast<double>(counts_[place]) : 0.0) + (weights_ ? weights_[place] : 0.0);
    if (place % 2 == 0) {
      others = weight;
    } else {
      ordered += weight * below;
      tied += weight * others;
      below += others;
    }
  });
  const double pairs = all.clicks * all.others;
  return {std::min((ordered + tied / 2) / pairs, 1.0), tied / 2 / pairs};
}

}  // namespace leashed
