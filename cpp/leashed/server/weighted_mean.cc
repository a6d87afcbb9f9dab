#include "leashed/server/weighted_mean.h"

#include <algorithm>

namespace leashed {
namespace {

constexpr std::size_t kPiece = 2048;  // values

}  // namespace

// Where all count alike there is a kernel, one pass with the same sums in the same order. (Only a
// sum of negative zeros keeps its sign there.)
void WeightedMean::begin(std::span<const double> weights, double divisor) {
  weights_.assign(weights.begin(), weights.end());
  plain_ = !weights.empty() && divisor == static_cast<double>(weights.size()) &&
           std::ranges::all_of(weights, [](double weight) { return weight == 1; });
  share_ = static_cast<float>(1 / divisor);
}

void WeightedMean::add(float* sum, std::span<const float* const> vectors, std::size_t begin,
                       std::size_t end) const {
  if (plain_) {
    kernels_.mean(sum, vectors.data(), vectors.size(), begin, end - begin);
    return;
  }
  // In pieces that stay in the first cache, where they are gone through once for each vector.
  for (std::size_t at = begin; at < end; at += kPiece) {
    const std::size_t to = std::min(end, at + kPiece);
    std::fill(sum + at, sum + to, 0.0f);
    for (std::size_t v = 0; v < vectors.size(); ++v) {
      const float* const values = vectors[v];
      const float weight = weights_[v];
      for (std::size_t i = at; i < to; ++i) sum[i] += weight * values[i];
    }
    for (std::size_t i = at; i < to; ++i) sum[i] *= share_;
  }
}

}  // namespace leashed
