#include "leashed/server/aggregator.h"

namespace leashed {

const float* Aggregator::begin(std::span<const Part> parts, double divisor) {
  if (sum_.size() == 0) sum_ = AlignedArray<float>(dimension_);
  vectors_.clear();
  weights_.clear();
  for (const Part& part : parts) {
    vectors_.push_back(slots_[part.slot].data());
    weights_.push_back(part.weight);
  }
  mean_.begin(weights_, divisor);
  return sum_.data();
}

}  // namespace leashed
