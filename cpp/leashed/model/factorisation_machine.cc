#include "leashed/model/factorisation_machine.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/base/extent.h"
#include "leashed/model/kernels/factors.h"
#include "leashed/model/kernels/sparse.h"

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

// The columns of some rows, each once.
class BatchColumns {
 public:
  explicit BatchColumns(std::size_t features) : place_(features) {}

  void collect(const SparseRows& rows, std::size_t count) {
    columns_.clear();
    of_entry_.clear();
    for (std::int64_t j = rows.offsets[0]; j < rows.offsets[count]; ++j) {
      const std::int32_t column = rows.columns[j];
      std::int32_t& place = place_[static_cast<std::size_t>(column)];
      // What was left there by another batch may be any place.
      const auto found = static_cast<std::size_t>(place);
      if (found >= columns_.size() || columns_[found] != column) {
        place = static_cast<std::int32_t>(columns_.size());
        columns_.push_back(column);
      }
      of_entry_.push_back(place);
    }
  }
  const std::int32_t* columns() const { return columns_.data(); }
  std::size_t size() const { return columns_.size(); }
  // Of each entry its column's place among them.
  const std::int32_t* of_entry() const { return of_entry_.data(); }

 private:
  std::vector<std::int32_t> place_, columns_, of_entry_;
};

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
    : SparseModel("a factorisation machine", features, 1, {width_of(k), 1}, loss, l2,
                  intercept_first, isa) {}

std::unique_ptr<Workspace> FactorisationMachine::make_workspace() const {
  return std::make_unique<Own>();
}

float FactorisationMachine::gradient(const float* theta, const BatchView& batch, float* gradient,
                                     Workspace& workspace, const std::atomic<bool>& cancel) const {
  const FactorKernels& kernels = factor_kernels(isa_);
  auto& own = static_cast<Own&>(workspace);
  float* o = own.outputs_for(kMicroBatch);
  float* sums = own.sums_for(kMicroBatch * k());
  const float* records = theta + columns();
  const double penalty = begin_gradient(theta, gradient);
  const float scale = 1.0f / static_cast<float>(batch.size);
  double loss = 0;
  for (std::size_t first = 0; first < batch.size; first += kMicroBatch) {
    if (cancel.load(std::memory_order_relaxed)) break;
    const std::size_t count = std::min(kMicroBatch, batch.size - first);
    const SparseRows rows = batch.sparse.from(first);
    kernels.outputs(records, theta + intercepts(), k(), rows, count,
                    {batch.sparse.offsets[batch.size]}, o, {sums});
    loss += loss_.residuals(o, o, count, 1, 1, batch.targets.from(first), 1);
    kernels.add(records, k(), rows, count, o, sums, scale, nullptr, gradient + columns());
    add_residuals(gradient + intercepts(), 1, o, count, scale);
  }
  return static_cast<float>(loss / static_cast<double>(batch.size) + 0.5 * l2_ * penalty);
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
  float* o = own.outputs_for(update.batch_size);
  float* sums = own.sums_for(update.batch_size * k());
  const bool adagrad = update.rule.is<Adagrad>();
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
                                      float* out) const {
  factor_kernels(isa_).outputs(theta + columns(), theta + intercepts(), k(), rows, count,
                               {rows.offsets[count]}, out, {});
}

}  // namespace leashed
