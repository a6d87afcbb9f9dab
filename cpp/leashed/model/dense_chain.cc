#include "leashed/model/dense_chain.h"

#include <algorithm>
#include <utility>

#include "leashed/model/row_stride.h"

namespace leashed {
namespace {

bool rectifies(const DenseStage& stage) { return stage.activation == &ActivationKernels::relu; }

}  // namespace

DenseChain::DenseChain(std::vector<DenseStage> stages, bool needs_input_gradient, Isa isa,
                       std::size_t max_rows)
    : stages_(std::move(stages)), dense_(dense_kernels(isa)), activation_(activation_kernels(isa)) {
  std::size_t longest = max_rows;  // inner dimension of a product
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const DenseStage& stage = stages_[i];
    if (i + 1 < stages_.size()) {
      const std::size_t values = max_rows * row_stride(stage.outputs);
      inner_.emplace_back(values);
      gradients_.emplace_back(apart(i) ? values : 0);
    }
    const bool needed = i > 0 || needs_input_gradient;
    transposed_.emplace_back(needed ? stage.outputs * row_stride(stage.inputs) : 0);
    longest = std::max({longest, stage.inputs, stage.outputs});
  }
  scratch_ = AlignedArray<float>(dense_.gemm_scratch(longest));
}

const Activation* DenseChain::apart(std::size_t stage) const {
  const AnyActivation activation = stages_[stage].activation;
  return activation && !rectifies(stages_[stage]) ? &(activation_.*activation) : nullptr;
}

void DenseChain::derive(const Activation& activation, std::size_t rows, std::size_t width,
                        const float* out, float* gradient, std::size_t stride) const {
  for (std::size_t row = 0; row < rows; ++row) {
    activation.backward(out + row * stride, gradient + row * stride, width);
  }
}

void DenseChain::forward(const float* theta, std::size_t rows, const float* in,
                         std::size_t in_stride, float* out, std::size_t out_stride,
                         RowsAhead& ahead) {
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const DenseStage& stage = stages_[i];
    const bool last = i + 1 == stages_.size();
    float* to = last ? out : inner_[i].data();
    const std::size_t to_stride = last ? out_stride : row_stride(stage.outputs);
    dense_.gemm({.m = rows,
                 .n = stage.outputs,
                 .k = stage.inputs,
                 .a = in,
                 .a_row = in_stride,
                 .b = theta + stage.weight,
                 .ldb = stage.outputs,
                 .c = to,
                 .ldc = to_stride,
                 .bias = theta + stage.bias,
                 .relu = rectifies(stage),
                 .ahead = &ahead},
                scratch_.data());
    if (const Activation* activation = apart(i)) {
      for (std::size_t row = 0; row < rows; ++row) {
        activation->forward(to + row * to_stride, stage.outputs);
      }
    }
    in = to;
    in_stride = to_stride;
  }
}

void DenseChain::prepare_backward(const float* theta) {
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    if (!transposed_[i]) continue;
    const DenseStage& stage = stages_[i];
    dense_.transpose(theta + stage.weight, stage.inputs, stage.outputs, stage.outputs,
                     transposed_[i].data(), row_stride(stage.inputs));
  }
}

void DenseChain::backward(const Backward& b, RowsAhead& ahead) {
  if (const AnyActivation last = stages_.back().activation) {
    derive(activation_.*last, b.rows, stages_.back().outputs, b.out, b.d_out, b.out_stride);
  }
  const float* d_out = b.d_out;
  std::size_t d_out_stride = b.out_stride;
  for (std::size_t i = stages_.size(); i-- > 0;) {
    const DenseStage& stage = stages_[i];
    const float* in = i > 0 ? inner_[i - 1].data() : b.in;
    const std::size_t in_stride = i > 0 ? row_stride(stage.inputs) : b.in_stride;
    dense_.gemm({.m = stage.inputs,  // dW = X^T dY
                 .n = stage.outputs,
                 .k = b.rows,
                 .a = in,
                 .a_row = 1,
                 .a_col = in_stride,
                 .b = d_out,
                 .ldb = d_out_stride,
                 .c = b.gradient + stage.weight,
                 .ldc = stage.outputs,
                 .accumulate = b.accumulate,
                 .ahead = &ahead},
                scratch_.data());
    if (stage.trains_bias) {
      dense_.column_sums(d_out, b.rows, stage.outputs, d_out_stride, b.gradient + stage.bias,
                         b.accumulate);
    } else {
      std::fill_n(b.gradient + stage.bias, stage.outputs, 0.0f);
    }
    if (!transposed_[i]) return;
    const Activation* before = i > 0 ? apart(i - 1) : nullptr;
    float* d_in = i == 0 ? b.d_in : before ? gradients_[i - 1].data() : inner_[i - 1].data();
    dense_.gemm({.m = b.rows,  // dX = dY W^T
                 .n = stage.inputs,
                 .k = stage.outputs,
                 .a = d_out,
                 .a_row = d_out_stride,
                 .b = transposed_[i].data(),
                 .ldb = row_stride(stage.inputs),
                 .c = d_in,
                 .ldc = in_stride,
                 .accumulate = i == 0 && b.adds_d_in,
                 .gate = i > 0 && rectifies(stages_[i - 1]) ? in : nullptr,
                 .ahead = &ahead},
                scratch_.data());
    if (before) derive(*before, b.rows, stage.inputs, in, d_in, in_stride);
    d_out = d_in;
    d_out_stride = in_stride;
  }
}

}  // namespace leashed
