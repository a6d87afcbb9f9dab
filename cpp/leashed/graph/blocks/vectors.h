// The inputs of a block that takes vectors of one width, as its kernels read them.
#pragma once

#include <vector>

#include "leashed/graph/block.h"
#include "leashed/kernels/interaction.h"

namespace leashed {

class VectorInputs {
 public:
  explicit VectorInputs(const Ports& ports) : inputs_(ports.inputs) {
    for (const InputWindow& in : inputs_) {
      vectors_.push_back({in.values, in.stride});
      gradients_.push_back({in.needed ? in.gradient : nullptr, in.stride, nullptr, in.adds});
    }
  }

  // Of a micro-batch.
  Vectors values(const MicroBatch& step) {
    for (std::size_t j = 0; j < inputs_.size(); ++j) {
      const InputWindow& in = inputs_[j];
      if (!in.rows) continue;
      vectors_[j] = {in.values, in.stride};
      gradients_[j] = {in.gradient, in.stride, nullptr, in.adds};
      if (!in.rows->is_row(step.batch)) continue;
      const TableRows& table = step.batch.tables[in.rows->table];
      const std::uint32_t* places = step.batch.places[in.rows->feature] + step.first;
      vectors_[j] = {nullptr, 0, table.values, places};
      gradients_[j] = {table.gradient, table.stride, places, true};
    }
    return {inputs_.size(), inputs_.front().width, vectors_.data()};
  }
  // Of the last one that values() was called for.
  const VectorGradient* gradients() const { return gradients_.data(); }

 private:
  const std::vector<InputWindow> inputs_;
  std::vector<Vector> vectors_;
  std::vector<VectorGradient> gradients_;
};

}  // namespace leashed
