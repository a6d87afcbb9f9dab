#include "leashed/model/dense_chain.h"

#include <algorithm>
#include <utility>

#include "leashed/model/row_stride.h"

namespace leashed {

DenseChain::DenseChain(std::vector<DenseStage> stages, bool needs_input_gradient, Isa isa,
                       std::size_t max_rows)
    : stages_(std::move(stages)), dense_(dense_kernels(isa)), activation_(activation_kernels(isa)) {
  std::size_t longest = max_rows;  // inner dimension of a product
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const DenseStage& stage = stages_[i];
    if (i + 1 < stages_.size()) inner_.emplace_back(max_rows * row_stride(stage.outputs));
    const bool needed = i > 0 || needs_input_gradient;
    transposed_.emplace_back(needed ? stage.outputs * row_stride(stage.inputs) : 0);
    longest = std::max({longest, stage.inputs, stage.outputs});
  }
  scratch_ = AlignedArray<float>(dense_.gemm_scratch(longest));
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
                 .relu = stage.relu,
                 .ahead = &ahead},
                scratch_.data());
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
  if (stages_.back().relu) {
    for (std::size_t row = 0; row < b.rows; ++row) {
      activation_.relu_backward(b.out + row * b.out_stride, b.d_out + row * b.out_stride,
                                stages_.back().outputs);
    }
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
    float* d_in = i > 0 ? inner_[i - 1].data() : b.d_in;
    dense_.gemm({.m = b.rows,  // dX = dY W^T, between stages written over X
                 .n = stage.inputs,
                 .k = stage.outputs,
                 .a = d_out,
                 .a_row = d_out_stride,
                 .b = transposed_[i].data(),
                 .ldb = row_stride(stage.inputs),
                 .c = d_in,
                 .ldc = in_stride,
                 .accumulate = i == 0 && b.adds_d_in,
                 .gate = i > 0 && stages_[i - 1].relu ? in : nullptr,
                 .ahead = &ahead},
                scratch_.data());
    d_out = d_in;
    d_out_stride = in_stride;
  }
}

}  // namespace leashed
