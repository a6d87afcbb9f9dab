// The mean of vectors with weights, added in the order in which they are given: a sum has the same
// bits wherever it is made, and in however many parts.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "leashed/update/kernels.h"

namespace leashed {

class WeightedMean {
 public:
  // One weight a vector.
  void begin(std::span<const double> weights, double divisor);
  // Other weights for what add() is called of from here on.
  void weigh(std::span<const double> weights) {
    weights_.assign(weights.begin(), weights.end());
    plain_ = false;
  }
  // sum[i] ← Σ weight · vector[i] / divisor, of each i in [begin, end). Any threads, each others.
  void add(float* sum, std::span<const float* const> vectors, std::size_t begin,
           std::size_t end) const;

 private:
  const UpdateKernels& kernels_ = update_kernels();
  std::vector<float> weights_;
  bool plain_ = false;
  float share_ = 1;
};

}  // namespace leashed
