#include "leashed/columns/sparse_network.h"

#include <algorithm>

#include "leashed/kernels/sparse_product.h"
#include "leashed/model/row_stride.h"

namespace leashed {
namespace {

// What lies behind the first stage's weights: its biases, and the stages above.
ColumnShape shape_of(const std::vector<DenseStage>& stages) {
  const DenseStage &first = stages.front(), &last = stages.back();
  return {first.outputs, last.bias + last.outputs - first.bias};
}

// Those above the first, in what lies behind its weights.
std::vector<DenseStage> above(const std::vector<DenseStage>& stages) {
  std::vector<DenseStage> result(stages.begin() + 1, stages.end());
  for (DenseStage& stage : result) {
    stage.weight -= stages.front().bias;
    stage.bias -= stages.front().bias;
  }
  return result;
}

}  // namespace

// One thread's.
struct SparseNetwork::Own final : Scratch {
  Own(const std::vector<DenseStage>& stages, Isa isa)
      : width(stages.front().outputs),
        stride(row_stride(width)),
        hidden(kMicroBatch * stride),
        d_hidden(kMicroBatch * stride),
        d_out(kMicroBatch * row_stride(stages.back().outputs)),
        chain(above(stages), true, isa, kMicroBatch) {}

  const std::size_t width, stride;
  AlignedArray<float> hidden, d_hidden;  // of the first stage, [rows][width] with the row stride
  AlignedArray<float> d_out;
  DenseChain chain;
};

SparseNetwork::SparseNetwork(const std::vector<DenseStage>& stages, std::string_view loss,
                             double l2, bool columns_last, Isa isa)
    : SparseModel("a network",
                  {.features = stages.front().inputs,
                   .outputs = stages.back().outputs,
                   .shape = shape_of(stages),
                   .intercepts_first = columns_last,
                   .trains_intercepts = false},
                  loss, l2, isa),
      stages_(stages) {}

std::unique_ptr<Workspace> SparseNetwork::make_workspace() const {
  return std::make_unique<Own>(stages_, isa_);
}

double SparseNetwork::begin_gradient(const float* theta, float* gradient,
                                     Workspace& workspace) const {
  double squares = SparseModel::begin_gradient(theta, gradient, workspace);
  static_cast<Own&>(workspace).chain.prepare_backward(theta + intercepts());
  if (l2_ == 0) return squares;
  const auto l2 = static_cast<float>(l2_);
  for (const DenseStage& stage : above(stages_)) {
    const float* w = theta + intercepts() + stage.weight;
    float* dw = gradient + intercepts() + stage.weight;
    for (std::size_t i = 0; i < stage.inputs * stage.outputs; ++i) {
      dw[i] = l2 * w[i];
      squares += double{w[i]} * double{w[i]};
    }
  }
  return squares;
}

void SparseNetwork::outputs_of(const float* theta, const SparseRows& rows, std::size_t count,
                               float* out, Workspace& workspace) const {
  auto& own = static_cast<Own&>(workspace);
  const float* others = theta + intercepts();
  sparse_product_kernels(isa_).product(theta + columns(), others, own.width, rows, count,
                                       own.hidden.data(), own.stride);
  if (const AnyActivation activation = stages_.front().activation) {
    for (std::size_t row = 0; row < count; ++row) {
      (activation_kernels(isa_).*activation)
          .forward(own.hidden.data() + row * own.stride, own.width);
    }
  }
  RowsAhead none;
  own.chain.forward(others, count, own.hidden.data(), own.stride, out, outputs_, none);
}

void SparseNetwork::add_gradient(const float*, const SparseRows& rows, std::size_t count,
                                 const float* residuals, float scale, float* gradient,
                                 Workspace& workspace) const {
  auto& own = static_cast<Own&>(workspace);
  float* others = gradient + intercepts();
  for (std::size_t i = 0; i < count * outputs_; ++i) own.d_out[i] = scale * residuals[i];
  RowsAhead none;
  own.chain.backward({.rows = count,
                      .in = own.hidden.data(),
                      .in_stride = own.stride,
                      .out = residuals,
                      .out_stride = outputs_,
                      .d_out = own.d_out.data(),
                      .d_in = own.d_hidden.data(),
                      .adds_d_in = false,
                      .gradient = others,
                      .accumulate = true},
                     none);
  if (const AnyActivation activation = stages_.front().activation) {
    for (std::size_t row = 0; row < count; ++row) {
      const std::size_t at = row * own.stride;
      (activation_kernels(isa_).*activation)
          .backward(own.hidden.data() + at, own.d_hidden.data() + at, own.width);
    }
  }
  if (stages_.front().trains_bias) {
    dense_kernels(isa_).column_sums(own.d_hidden.data(), count, own.width, own.stride, others,
                                    true);
  }
  sparse_product_kernels(isa_).add_transposed(gradient + columns(), own.width, rows, count,
                                              own.d_hidden.data(), own.stride);
}

}  // namespace leashed
