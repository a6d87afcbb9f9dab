// What becomes of a model's outputs: losses and their gradients, how many are right, predictions;
// for up to `max_rows` examples at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "leashed/base/aligned.h"
#include "leashed/model/loss.h"
#include "leashed/model/row_stride.h"

namespace leashed {

class HeadPass {
 public:
  HeadPass(const Loss& loss, std::size_t outputs, std::size_t max_rows)
      : loss_(loss), outputs_(outputs), judged_(max_rows * stride()) {}

  // Of the outputs and of what is made of them: [rows][outputs] with this row stride.
  std::size_t stride() const { return row_stride(outputs_); }

  // The sum of the rows' weighted losses at these outputs; residuals() is then `scale` times their
  // gradient, and may be written to.
  double loss(const float* outputs, std::size_t rows, const Targets& targets, float scale);
  float* residuals() { return judged_.data(); }
  // The outputs without padding.
  void logits(const float* outputs, std::size_t rows, float* out) const;
  // How many rows are classified right.
  std::uint64_t correct(const float* outputs, std::size_t rows, const Targets& targets) const;
  // Writes what a prediction is of each row to out, [rows][outputs] without padding.
  void predict(const float* outputs, std::size_t rows, float* out);

 private:
  const Loss& loss_;
  const std::size_t outputs_;
  AlignedArray<float> judged_;  // residuals, or predictions
};

}  // namespace leashed
