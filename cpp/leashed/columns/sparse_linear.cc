#include "leashed/columns/sparse_linear.h"

#include <algorithm>

#include "leashed/kernels/sparse.h"
#include "leashed/update/rule.h"
#include "leashed/update/rules.h"

namespace leashed {
SparseLinear::SparseLinear(std::size_t features, std::size_t outputs, std::string_view loss,
                           double l2, bool trains_bias, bool bias_first, Isa isa)
    : ColumnwiseModel("a linear model",
                      {features, outputs, {outputs, outputs}, bias_first, trains_bias}, loss, l2,
                      isa) {}

std::unique_ptr<Workspace> SparseLinear::make_workspace() const {
  return std::make_unique<Scratch>();
}

float SparseLinear::update(const SparseUpdate& update, const BatchView& batch,
                           Workspace& workspace) const {
  const SparseKernels& sparse = sparse_kernels(isa_);
  auto& own = static_cast<Scratch&>(workspace);
  float* w = update.theta + columns();
  float* b = update.theta + intercepts();
  const std::size_t most = std::min(update.batch_size, batch.size);
  float* o = own.outputs_for((most + 1) * outputs_);
  float* sums = o + most * outputs_;
  const bool adagrad = update.rule.is(kArithmetic<Adagrad>);
  float* gradient = adagrad ? own.gradient_for(dimension()) : nullptr;
  float check = 0;
  std::uint64_t t = update.t;
  for (std::size_t first = 0; first < batch.size; first += update.batch_size, ++t) {
    const std::size_t count = std::min(update.batch_size, batch.size - first);
    const SparseRows rows = batch.sparse.from(first);
    sparse.outputs(w, b, outputs_, rows, count, o);
    tell_logits(batch, first, count, o);
    check += residuals(o, count, batch.targets.from(first), update.loss);
    const Coefficients c = update.rule.coefficients({t});
    const float share = 1.0f / static_cast<float>(count);
    if (trains_intercepts_) {
      std::fill_n(sums, outputs_, 0.0f);
      add_residuals(sums, outputs_, o, count, 1.0f);
    }
    if (adagrad) {
      float* dw = gradient + columns();
      float* db = gradient + intercepts();
      sparse.add(dw, outputs_, rows, count, o, share);
      sparse.adagrad_racy(w, update.stride, outputs_, rows, count, dw, c.lr, c.epsilon);
      if (!trains_intercepts_) continue;
      for (std::size_t k = 0; k < outputs_; ++k) db[k] = share * sums[k];
      sparse.adagrad_racy(b, update.stride, outputs_, one_row(), 1, db, c.lr, c.epsilon);
    } else {
      sparse.add_racy(w, outputs_, rows, count, o, -c.lr * share);
      if (trains_intercepts_) sparse.add_racy(b, outputs_, one_row(), 1, sums, -c.lr * share);
    }
  }
  return check;
}

void SparseLinear::outputs_of(const float* theta, const SparseRows& rows, std::size_t count,
                              float* out, Workspace&) const {
  sparse_kernels(isa_).outputs(theta + columns(), theta + intercepts(), outputs_, rows, count, out);
}

void SparseLinear::add_gradient(const float*, const SparseRows& rows, std::size_t count,
                                const float* residuals, float scale, float* gradient,
                                Workspace&) const {
  sparse_kernels(isa_).add(gradient + columns(), outputs_, rows, count, residuals, scale);
}

}  // namespace leashed
