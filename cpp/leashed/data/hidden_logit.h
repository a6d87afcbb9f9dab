// The logits of a hidden model that draws labels: bias + scale · score, such that over given scores
// they have a standard deviation and labels a rate.
#pragma once

#include <cmath>
#include <span>

namespace leashed {

struct HiddenLogit {
  double bias = 0, scale = 1;

  HiddenLogit() = default;
  HiddenLogit(std::span<const double> scores, double spread, double rate) {
    const auto n = static_cast<double>(scores.size());
    double sum = 0, squares = 0;
    for (const double s : scores) {
      sum += s;
      squares += s * s;
    }
    const double mean = sum / n;
    scale = spread / std::sqrt(squares / n - mean * mean);
    double low = -scale * mean - 20, high = -scale * mean + 20;
    for (int step = 0; step < 50; ++step) {
      bias = (low + high) / 2;
      double labels = 0;
      for (const double s : scores) labels += probability(s);
      (labels < rate * n ? low : high) = bias;
    }
  }

  double probability(double score) const { return 1 / (1 + std::exp(-(bias + scale * score))); }
};

}  // namespace leashed
