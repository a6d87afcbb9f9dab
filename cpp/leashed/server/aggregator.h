// What has been pushed and is kept until it is applied, by slots: gradients, or models. It is
// summed in the order in which the slots are named, so that a sum has the same bits whoever came
// first.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/base/archive.h"
#include "leashed/server/weighted_mean.h"

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

  // What the slot has.
  void visit(Archive& archive, std::uint32_t slot) {
    if (slot >= slots_.size()) slots_.resize(slot + 1);
    if (slots_[slot].size() == 0) slots_[slot] = AlignedArray<float>(dimension_);
    archive.vector(slots_[slot].data(), dimension_);
  }

  // Where Σ weight · slot / divisor will be, until the next: what add() has been called of.
  const float* begin(std::span<const Part> parts, double divisor);
  // Other weights for what add() is called of from here on, one a part.
  void weigh(std::span<const double> weights) { mean_.weigh(weights); }
  // Finds the sums [begin, end). Any threads, each others.
  void add(std::size_t begin, std::size_t end) { mean_.add(sum_.data(), vectors_, begin, end); }
  const float* operator[](std::uint32_t slot) const { return slots_[slot].data(); }

 private:
  const std::size_t dimension_;
  std::vector<AlignedArray<float>> slots_;
  // What is summed.
  std::vector<const float*> vectors_;
  std::vector<double> weights_;
  WeightedMean mean_;
  AlignedArray<float> sum_;
};

}  // namespace leashed
