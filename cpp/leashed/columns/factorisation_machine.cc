#include "leashed/columns/factorisation_machine.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "leashed/base/error.h"
#include "leashed/base/extent.h"
#include "leashed/kernels/factors.h"
#include "leashed/kernels/sparse.h"
#include "leashed/sparse/batch_columns.h"
#include "leashed/update/rule.h"
#include "leashed/update/rules.h"

namespace leashed {
namespace {

// Parameters of a column.
std::size_t width_of(std::size_t k) {
  if (k == 0) throw Error("a factorisation machine needs at least 1 factor for each feature");
  return std::min(k, kMostValues) + 1;
}

// Factors that are kept of a batch, at most: a mebibyte, which the second-level cache holds, or
// nearly. Beyond, its gradient is summed up first.
constexpr std::size_t kMostKept = 1 << 18;

}  // namespace

struct FactorisationMachine::Own final : Scratch {
  float* sums_for(std::size_t n) { return grown(sums, n); }
  float* factors_for(std::size_t n) { return grown(factors, n); }

  AlignedArray<float> sums, factors;
  std::optional<BatchColumns> columns;
};

FactorisationMachine::FactorisationMachine(std::size_t features, std::size_t k,
                                           std::string_view loss, double l2, bool intercept_first,
                                           Isa isa)
    : ColumnwiseModel("a factorisation machine", {features, 1, {width_of(k), 1}, intercept_first},
                      loss, l2, isa) {}

std::unique_ptr<Workspace> FactorisationMachine::make_workspace() const {
  return std::make_unique<Own>();
}

// A batch's gradient is that of the parameters as they were before it. In a row alone no column
// comes again. Of more rows SGD adds it entry by entry, with the factors as they were read; where
// these would be too many, and for Adagrad, which squares the sum over a batch, it is summed up
// first.
float FactorisationMachine::update(const SparseUpdate& update, const BatchView& batch,
                                   Workspace& workspace) const {
  const FactorKernels& kernels = factor_kernels(isa_);
  const SparseKernels& sparse = sparse_kernels(isa_);
  auto& own = static_cast<Own&>(workspace);
  float* records = update.theta + columns();
  float* b = update.theta + intercepts();
  const std::size_t most = std::min(update.batch_size, batch.size);
  float* o = own.outputs_for(most);
  float* sums = own.sums_for(most * k());
  const bool adagrad = update.rule.is(kArithmetic<Adagrad>);
  const FactorsAhead ahead{batch.sparse.offsets[batch.size], adagrad ? update.stride : 0};

  float check = 0;
  std::uint64_t t = update.t;
  for (std::size_t first = 0; first < batch.size; first += update.batch_size, ++t) {
    const std::size_t count = std::min(update.batch_size, batch.size - first);
    const SparseRows rows = batch.sparse.from(first);
    const auto entries = static_cast<std::size_t>(rows.offsets[count] - rows.offsets[0]);
    const bool summed = count > 1 && (adagrad || entries * k() > kMostKept);
    const bool kept = count > 1 && !summed;
    const FactorSums sums_kept{sums, kept ? own.factors_for(entries * k()) : nullptr};
    kernels.outputs(records, b, k(), rows, count, ahead, o, sums_kept);
    tell_logits(batch, first, count, o);
    check += residuals(o, count, batch.targets.from(first), update.loss);
    const Coefficients c = update.rule.coefficients({t});
    const float share = 1.0f / static_cast<float>(count);
    float residual = 0;
    add_residuals(&residual, 1, o, count, 1.0f);
    if (summed) {
      if (!own.columns) own.columns.emplace(features_);
      BatchColumns& found = *own.columns;
      found.collect(rows, count);
      float* gradient = own.gradient_for(std::bit_ceil(found.size() * shape_.width));
      kernels.add(records, k(), rows, count, o, sums, share, found.of_entry(), gradient);
      if (adagrad) {
        kernels.adagrad_racy(records, update.stride, k(), found.columns(), found.size(), gradient,
                             c.lr, c.epsilon);
      } else {
        kernels.sgd_racy(records, k(), found.columns(), found.size(), gradient, c.lr);
      }
    } else if (adagrad) {
      kernels.adagrad_row_racy(records, update.stride, k(), rows, *o, sums, share, c.lr, c.epsilon);
    } else {
      kernels.add_racy(records, k(), rows, count, o, sums_kept, -c.lr * share);
    }
    if (adagrad) {
      residual *= share;
      sparse.adagrad_racy(b, update.stride, 1, one_row(), 1, &residual, c.lr, c.epsilon);
    } else {
      sparse.add_racy(b, 1, one_row(), 1, &residual, -c.lr * share);
    }
  }
  return check;
}

void FactorisationMachine::outputs_of(const float* theta, const SparseRows& rows, std::size_t count,
                                      float* out, Workspace& workspace) const {
  float* sums = static_cast<Own&>(workspace).sums_for(count * k());
  factor_kernels(isa_).outputs(theta + columns(), theta + intercepts(), k(), rows, count,
                               {rows.offsets[count]}, out, {sums});
}

void FactorisationMachine::add_gradient(const float* theta, const SparseRows& rows,
                                        std::size_t count, const float* residuals, float scale,
                                        float* gradient, Workspace& workspace) const {
  const float* sums = static_cast<Own&>(workspace).sums.data();
  factor_kernels(isa_).add(theta + columns(), k(), rows, count, residuals, sums, scale, nullptr,
                           gradient + columns());
}

}  // namespace leashed
