// What has been pushed and is kept until it is applied, by slots: gradients, or models. It is
// summed in the order in which the slots are named, so that a sum has the same bits whoever came
// first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/update/kernels.h"

namespace leashed {

class Aggregator {
 public:
  explicit Aggregator(std::size_t dimension) : dimension_(dimension) {}

  struct Part {
    std::uint32_t slot;
    double weight;
  };

  // Keeps `values` in the slot, which takes the memory; what it had before is given in exchange.
  void hold(std::uint32_t slot, AlignedArray<float>& values) {
    if (slot >= slots_.size()) slots_.resize(slot + 1);
    std::swap(slots_[slot], values);
    if (values.size() == 0) values = AlignedArray<float>(dimension_);
  }

  // Σ weight · slot / divisor, until the next.
  const float* mean(std::span<const Part> parts, double divisor) {
    if (sum_.size() == 0) sum_ = AlignedArray<float>(dimension_);
    if (is_plain(parts, divisor)) {
      vectors_.clear();
      for (const Part& part : parts) vectors_.push_back(slots_[part.slot].data());
      kernels_.mean(sum_.data(), vectors_.data(), vectors_.size(), 0, dimension_);
      return sum_.data();
    }
    std::fill_n(sum_.data(), dimension_, 0.0f);
    for (const Part& part : parts) {
      const float* const values = slots_[part.slot].data();
      const auto weight = static_cast<float>(part.weight);
      for (std::size_t i = 0; i < dimension_; ++i) sum_.data()[i] += weight * values[i];
    }
    const auto share = static_cast<float>(1 / divisor);
    for (std::size_t i = 0; i < dimension_; ++i) sum_.data()[i] *= share;
    return sum_.data();
  }
  const float* operator[](std::uint32_t slot) const { return slots_[slot].data(); }

 private:
  // All count alike: there is a kernel for that, one pass with the same sums in the same order.
  // (Only a sum of negative zeros keeps its sign there.)
  static bool is_plain(std::span<const Part> parts, double divisor) {
    return !parts.empty() && divisor == static_cast<double>(parts.size()) &&
           std::all_of(parts.begin(), parts.end(), [](const Part& p) { return p.weight == 1; });
  }

  const UpdateKernels& kernels_ = update_kernels();
  const std::size_t dimension_;
  std::vector<AlignedArray<float>> slots_;
  std::vector<const float*> vectors_;
  AlignedArray<float> sum_;
};

}  // namespace leashed
