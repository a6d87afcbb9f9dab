// Dense layers one after another, forward and backward, for up to `max_rows` examples at a time,
// with the memory it takes between them. Row-major throughout.
#pragma once

#include <cstddef>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/base/isa.h"
#include "leashed/kernels/activation.h"
#include "leashed/kernels/dense.h"

namespace leashed {

// A dense layer, with the activation after it if there is one.
struct DenseStage {
  std::size_t inputs, outputs;
  std::size_t weight, bias;  // offsets in theta
  bool trains_bias;
  AnyActivation activation = nullptr;
};

class DenseChain {
 public:
  // At least one stage. `needs_input_gradient`: whether backward() is to give it.
  DenseChain(std::vector<DenseStage> stages, bool needs_input_gradient, Isa isa,
             std::size_t max_rows);

  // in [rows][inputs] → out [rows][outputs], with row strides. Rows that lie ahead are fetched into
  // the cache beside the work, here and in backward().
  void forward(const float* theta, std::size_t rows, const float* in, std::size_t in_stride,
               float* out, std::size_t out_stride, RowsAhead& ahead);

  // To be called before the first backward() at theta.
  void prepare_backward(const float* theta);

  struct Backward {
    std::size_t rows;
    const float* in;  // as in forward()
    std::size_t in_stride;
    const float* out;
    std::size_t out_stride;
    float* d_out;     // the gradient with respect to `out`, at its stride; is written to
    float* d_in;      // takes the one with respect to `in`, at its stride; may be `in`
    bool adds_d_in;   // and does not overwrite it
    float* gradient;  // of theta: that of the stages' parameters is written, or added, to it
    bool accumulate;
  };
  // After forward() of the same rows.
  void backward(const Backward&, RowsAhead& ahead);

 private:
  // What follows a stage, null where nothing does; ReLU is part of the products.
  const Activation* apart(std::size_t stage) const;
  void derive(const Activation&, std::size_t rows, std::size_t width, const float* out,
              float* gradient, std::size_t stride) const;

  const std::vector<DenseStage> stages_;
  const DenseKernels& dense_;
  const ActivationKernels& activation_;
  // inner_[i] is the output of stage i; of the last the caller has it. The gradient with respect to
  // each overwrites it on the way back, or is in gradients_[i] where f′ needs the output.
  std::vector<AlignedArray<float>> inner_, gradients_;
  std::vector<AlignedArray<float>> transposed_;  // W^T of each stage whose input gradient is needed
  AlignedArray<float> scratch_;
};

}  // namespace leashed
