// Forward and backward through a plan's dense stages and the loss, for up to `max_rows` examples
// at a time, with the memory it takes. Row-major throughout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/base/isa.h"
#include "leashed/model/kernels/activation.h"
#include "leashed/model/kernels/dense.h"
#include "leashed/model/loss.h"
#include "leashed/model/plan.h"

namespace leashed {

class DensePass {
 public:
  DensePass(const Plan& plan, const Loss& loss, Isa isa, std::size_t max_rows);

  // Where the caller puts the examples: [rows][plan.flat], row stride input_stride().
  float* input() { return outputs_.front().data(); }
  std::size_t input_stride() const { return stride(plan_.flat); }
  // [rows][plan.classes], row stride logits_stride().
  const float* logits() const { return outputs_.back().data(); }
  std::size_t logits_stride() const { return stride(plan_.classes); }

  // Rows that forward() and backward() fetch into the cache beside their work.
  void look_ahead(const float* const* rows, std::size_t count, std::size_t length) {
    ahead_ = {rows, rows + count, length};
  }

  // input() → logits().
  void forward(const float* theta, std::size_t rows);
  // The sum of the rows' weighted losses at logits(). What backward() goes on from is `scale` times
  // their gradient.
  double loss(std::size_t rows, const Targets& targets, float scale);
  // How many rows are classified right.
  std::uint64_t correct(std::size_t rows, const Targets& targets) const;
  // logits() → what a prediction is, same layout.
  const float* predictions(std::size_t rows);

  // To be called before the first backward() at theta.
  void prepare_backward(const float* theta);
  // After loss(): the gradient with respect to the dense stages' parameters is written, or added,
  // to `gradient`. Returns the gradient with respect to input(), [rows][plan.flat] with stride
  // input_stride(), or null where nothing needs it.
  const float* backward(std::size_t rows, float* gradient, bool accumulate);

 private:
  // Row stride of n columns: whole cache lines and an odd number of them, so that a column's
  // elements fall into different sets of the cache.
  static std::size_t stride(std::size_t n) {
    constexpr std::size_t kLine = kCacheLine / sizeof(float);
    return ((n + kLine - 1) / kLine | 1) * kLine;
  }

  const Plan& plan_;
  const Loss& loss_;
  const DenseKernels& dense_;
  const ActivationKernels& activation_;
  // outputs_[0] is the input, outputs_[i + 1] the output of stage i. The gradient with respect to
  // each overwrites it on the way back.
  std::vector<AlignedArray<float>> outputs_;
  std::vector<AlignedArray<float>> transposed_;  // W^T of each stage whose input gradient is needed
  // Behind the loss: residuals, or predictions.
  AlignedArray<float> judged_, scratch_;
  RowsAhead ahead_;
};

}  // namespace leashed
