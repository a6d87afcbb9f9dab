// The inputs of a block that takes vectors of one width, as its kernels read them.
#pragma once

#include <memory>
#include <vector>

#include "leashed/model/block.h"
#include "leashed/model/kernels/interaction.h"

namespace leashed {

class VectorInputs {
 public:
  explicit VectorInputs(const Ports& ports)
      : width_(ports.inputs.front().width), adds_(new bool[ports.inputs.size()]) {
    for (std::size_t i = 0; i < ports.inputs.size(); ++i) {
      const InputWindow& in = ports.inputs[i];
      values_.push_back(in.values);
      strides_.push_back(in.stride);
      gradients_.push_back(in.needed ? in.gradient : nullptr);
      adds_[i] = in.adds;
    }
  }

  Vectors values() const { return {values_.size(), width_, values_.data(), strides_.data()}; }
  VectorGradients gradients() const { return {gradients_.data(), adds_.get()}; }

 private:
  const std::size_t width_;
  std::vector<const float*> values_;
  std::vector<std::size_t> strides_;
  std::vector<float*> gradients_;
  std::unique_ptr<bool[]> adds_;
};

}  // namespace leashed
