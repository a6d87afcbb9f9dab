// Metrics of clicks row by row: what the core's are judged by.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "leashed/data/dataset_view.h"

namespace reference {

class ClickMetrics {
 public:
  // Of rows of any weight; all have one of 1 where the targets have none.
  void add(std::span<const float> logits, const leashed::Targets& targets) {
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double weight = targets.weights ? double{targets.weights[i]} : 1;
      if (weight == 0) continue;
      const bool click = targets.labels[i] == 1;
      const double logit = logits[i];
      const double small = std::exp(-std::abs(logit));
      loss += weight * (std::max(click ? -logit : logit, 0.0) + std::log1p(small));
      expected += weight * ((logit < 0 ? small : 1) / (1 + small));
      auto& [others, clicks] = bins[bin_of(logits[i])];
      (click ? clicks : others) += weight;
      (click ? all_clicks : all_others) += weight;
    }
  }

  double log_loss() const { return loss / (all_clicks + all_others); }
  double normalised_entropy() const {
    if (all_clicks == 0 || all_others == 0) return std::numeric_limits<double>::quiet_NaN();
    const double p = all_clicks / (all_clicks + all_others);
    return log_loss() / -(p * std::log(p) + (1 - p) * std::log1p(-p));
  }
  double calibration() const {
    return all_clicks == 0 ? std::numeric_limits<double>::quiet_NaN() : expected / all_clicks;
  }
  // The AUC, and how far from it that of all pairs may be.
  std::pair<double, double> area_under_curve() const {
    if (all_clicks == 0 || all_others == 0 || std::isnan(expected)) {
      return {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};
    }
    double below = 0, ordered = 0, tied = 0;
    for (const auto& [bin, counts] : bins) {
      ordered += counts.second * below;
      tied += counts.second * counts.first;
      below += counts.first;
    }
    const double pairs = all_clicks * all_others;
    return {std::min((ordered + tied / 2) / pairs, 1.0), tied / 2 / pairs};
  }

  // Larger for larger floats, the upper half of their bits.
  static std::size_t bin_of(float logit) {
    const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0f);  // −0 is 0
    return (bits >> 31 ? ~bits : bits | 0x80000000) >> 16;
  }

  double loss = 0, expected = 0, all_clicks = 0, all_others = 0;
  std::map<std::size_t, std::pair<double, double>> bins;  // non-clicks and clicks
};

}  // namespace reference
