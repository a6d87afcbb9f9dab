#include "leashed/server/aggregator.h"

#include <algorithm>

namespace leashed {
namespace {

// All count alike: there is a kernel for that, one pass with the same sums in the same order. (Only
// a sum of negative zeros keeps its sign there.)
bool is_plain(std::span<const Aggregator::Part> parts, double divisor) {
  return !parts.empty() && divisor == static_cast<double>(parts.size()) &&
         std::ranges::all_of(parts, [](const Aggregator::Part& p) { return p.weight == 1; });
}

}  // namespace

const float* Aggregator::begin(std::span<const Part> parts, double divisor) {
  if (sum_.size() == 0) sum_ = AlignedArray<float>(dimension_);
  vectors_.clear();
  weights_.clear();
  for (const Part& part : parts) {
    vectors_.push_back(slots_[part.slot].data());
    weights_.push_back(static_cast<float>(part.weight));
  }
  plain_ = is_plain(parts, divisor);
  share_ = static_cast<float>(1 / divisor);
  return sum_.data();
}

void Aggregator::add(std::size_t begin, std::size_t end) {
  float* const sum = sum_.data();
  if (plain_) {
    kernels_.mean(sum, vectors_.data(), vectors_.size(), begin, end - begin);
    return;
  }
  std::fill(sum + begin, sum + end, 0.0f);
  for (std::size_t v = 0; v < vectors_.size(); ++v) {
    const float* const values = vectors_[v];
    const float weight = weights_[v];
    for (std::size_t i = begin; i < end; ++i) sum[i] += weight * values[i];
  }
  for (std::size_t i = begin; i < end; ++i) sum[i] *= share_;
}

}  // namespace leashed
