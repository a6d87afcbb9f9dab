#include "leashed/model/sparse_linear.h"

#include <algorithm>

#include "leashed/model/kernels/sparse.h"

namespace leashed {
SparseLinear::SparseLinear(std::size_t features, std::size_t outputs, std::string_view loss,
                           double l2, bool trains_bias, bool bias_first, Isa isa)
    : SparseModel("a linear model", features, outputs, {outputs, outputs}, loss, l2, bias_first,
                  isa),
      trains_bias_(trains_bias) {}

std::unique_ptr<Workspace> SparseLinear::make_workspace() const {
  return std::make_unique<Scratch>();
}

float SparseLinear::gradient(const float* theta, const BatchView& batch, float* gradient,
                             Workspace& workspace, const std::atomic<bool>& cancel) const {
  const SparseKernels& sparse = sparse_kernels(isa_);
  float* o = static_cast<Scratch&>(workspace).outputs_for(kMicroBatch * outputs_);
  const float* w = theta + columns();
  float* dw = gradient + columns();
  const double penalty = begin_gradient(theta, gradient);
  const float scale = 1.0f / static_cast<float>(batch.size);
  double loss = 0;
  for (std::size_t first = 0; first < batch.size; first += kMicroBatch) {
    if (cancel.load(std::memory_order_relaxed)) break;
    const std::size_t count = std::min(kMicroBatch, batch.size - first);
    const SparseRows rows = batch.sparse.from(first);
    sparse.outputs(w, theta + intercepts(), outputs_, rows, count, o);
    loss += loss_.residuals(o, o, count, outputs_, outputs_, batch.targets.from(first), 1);
    sparse.add(dw, outputs_, rows, count, o, scale);
    if (trains_bias_) add_residuals(gradient + intercepts(), outputs_, o, count, scale);
  }
  return static_cast<float>(loss / static_cast<double>(batch.size) + 0.5 * l2_ * penalty);
}

float SparseLinear::update(const SparseUpdate& update, const BatchView& batch,
                           Workspace& workspace) const {
  const SparseKernels& sparse = sparse_kernels(isa_);
  auto& own = static_cast<Scratch&>(workspace);
  float* w = update.theta + columns();
  float* b = update.theta + intercepts();
  float* o = own.outputs_for((update.batch_size + 1) * outputs_);
  float* sums = o + update.batch_size * outputs_;
  const bool adagrad = update.rule.is<Adagrad>();
  float* gradient = adagrad ? own.gradient_for(dimension()) : nullptr;
  float check = 0;
  std::uint64_t t = update.t;
  for (std::size_t first = 0; first < batch.size; first += update.batch_size, ++t) {
    const std::size_t count = std::min(update.batch_size, batch.size - first);
    const SparseRows rows = batch.sparse.from(first);
    sparse.outputs(w, b, outputs_, rows, count, o);
    check += residuals(o, count, batch.targets.from(first), update.loss);
    const Coefficients c = update.rule.coefficients({t});
    const float share = 1.0f / static_cast<float>(count);
    if (trains_bias_) {
      std::fill_n(sums, outputs_, 0.0f);
      add_residuals(sums, outputs_, o, count, 1.0f);
    }
    if (adagrad) {
      float* dw = gradient + columns();
      float* db = gradient + intercepts();
      sparse.add(dw, outputs_, rows, count, o, share);
      sparse.adagrad_racy(w, update.stride, outputs_, rows, count, dw, c.lr, c.epsilon);
      if (!trains_bias_) continue;
      for (std::size_t k = 0; k < outputs_; ++k) db[k] = share * sums[k];
      sparse.adagrad_racy(b, update.stride, outputs_, one_row(), 1, db, c.lr, c.epsilon);
    } else {
      sparse.add_racy(w, outputs_, rows, count, o, -c.lr * share);
      if (trains_bias_) sparse.add_racy(b, outputs_, one_row(), 1, sums, -c.lr * share);
    }
  }
  return check;
}

void SparseLinear::outputs_of(const float* theta, const SparseRows& rows, std::size_t count,
                              float* out) const {
  sparse_kernels(isa_).outputs(theta + columns(), theta + intercepts(), outputs_, rows, count, out);
}

}  // namespace leashed
