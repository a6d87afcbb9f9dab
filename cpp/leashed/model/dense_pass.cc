#include "leashed/model/dense_pass.h"

#include <algorithm>

namespace leashed {
DensePass::DensePass(const Plan& plan, const Loss& loss, Isa isa, std::size_t max_rows)
    : plan_(plan), loss_(loss), dense_(dense_kernels(isa)), activation_(activation_kernels(isa)) {
  const auto rows_of = [&](std::size_t n) { return AlignedArray<float>(max_rows * stride(n)); };
  outputs_.push_back(rows_of(plan.flat));
  std::size_t longest = max_rows;  // inner dimension of a product
  for (std::size_t i = 0; i < plan.dense.size(); ++i) {
    const DenseStage& stage = plan.dense[i];
    outputs_.push_back(rows_of(stage.outputs));
    transposed_.emplace_back(plan.dense_input_gradient(i) ? stage.outputs * stride(stage.inputs)
                                                          : 0);
    longest = std::max({longest, stage.inputs, stage.outputs});
  }
  judged_ = rows_of(plan.classes);
  scratch_ = AlignedArray<float>(dense_.gemm_scratch(longest));
}

void DensePass::forward(const float* theta, std::size_t rows) {
  for (std::size_t i = 0; i < plan_.dense.size(); ++i) {
    const DenseStage& stage = plan_.dense[i];
    dense_.gemm({.m = rows,
                 .n = stage.outputs,
                 .k = stage.inputs,
                 .a = outputs_[i].data(),
                 .a_row = stride(stage.inputs),
                 .a_col = 1,
                 .b = theta + stage.weight,
                 .ldb = stage.outputs,
                 .c = outputs_[i + 1].data(),
                 .ldc = stride(stage.outputs),
                 .bias = theta + stage.bias,
                 .relu = stage.relu,
                 .ahead = &ahead_},
                scratch_.data());
  }
}

double DensePass::loss(std::size_t rows, const Targets& targets, float scale) {
  return loss_.residuals(logits(), judged_.data(), rows, plan_.classes, logits_stride(), targets,
                         scale);
}

std::uint64_t DensePass::correct(std::size_t rows, const Targets& targets) const {
  if (!loss_.correct) return 0;
  return loss_.correct(logits(), rows, plan_.classes, logits_stride(), targets.labels);
}

const float* DensePass::predictions(std::size_t rows) {
  if (!loss_.predict) return logits();
  std::copy_n(logits(), rows * logits_stride(), judged_.data());
  loss_.predict(judged_.data(), rows, plan_.classes, logits_stride());
  return judged_.data();
}

void DensePass::prepare_backward(const float* theta) {
  for (std::size_t i = 0; i < plan_.dense.size(); ++i) {
    if (!transposed_[i]) continue;
    const DenseStage& stage = plan_.dense[i];
    dense_.transpose(theta + stage.weight, stage.inputs, stage.outputs, stage.outputs,
                     transposed_[i].data(), stride(stage.inputs));
  }
}

const float* DensePass::backward(std::size_t rows, float* gradient, bool accumulate) {
  float* d_out = judged_.data();
  if (!plan_.dense.empty() && plan_.dense.back().relu) {
    activation_.relu_backward(logits(), d_out, rows * logits_stride());
  }
  for (std::size_t i = plan_.dense.size(); i-- > 0;) {
    const DenseStage& stage = plan_.dense[i];
    float* in = outputs_[i].data();
    dense_.gemm({.m = stage.inputs,  // dW = X^T dY
                 .n = stage.outputs,
                 .k = rows,
                 .a = in,
                 .a_row = 1,
                 .a_col = stride(stage.inputs),
                 .b = d_out,
                 .ldb = stride(stage.outputs),
                 .c = gradient + stage.weight,
                 .ldc = stage.outputs,
                 .accumulate = accumulate,
                 .ahead = &ahead_},
                scratch_.data());
    if (stage.trains_bias) {
      dense_.column_sums(d_out, rows, stage.outputs, stride(stage.outputs), gradient + stage.bias,
                         accumulate);
    } else {
      std::fill_n(gradient + stage.bias, stage.outputs, 0.0f);
    }
    if (!transposed_[i]) return nullptr;
    dense_.gemm({.m = rows,  // dX = dY W^T, written over X
                 .n = stage.inputs,
                 .k = stage.outputs,
                 .a = d_out,
                 .a_row = stride(stage.outputs),
                 .a_col = 1,
                 .b = transposed_[i].data(),
                 .ldb = stride(stage.inputs),
                 .c = in,
                 .ldc = stride(stage.inputs),
                 .gate = i > 0 && plan_.dense[i - 1].relu ? in : nullptr,
                 .ahead = &ahead_},
                scratch_.data());
    d_out = in;
  }
  return d_out;
}

}  // namespace leashed
