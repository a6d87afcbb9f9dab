#include "leashed/columns/field_aware_machine.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "leashed/base/error.h"
#include "leashed/base/extent.h"
#include "leashed/columns/field_finder.h"
#include "leashed/kernels/factors.h"
#include "leashed/kernels/sparse.h"
#include "leashed/sparse/batch_columns.h"
#include "leashed/update/rule.h"
#include "leashed/update/rules.h"

namespace leashed {
namespace {

std::size_t fields_in(const std::vector<std::uint16_t>& field_of) {
  return field_of.empty() ? 1 : std::size_t{1} + *std::ranges::max_element(field_of);
}

// Parameters of a column.
std::size_t width_of(std::size_t fields, std::size_t k) {
  if (k == 0) throw Error("a field-aware factorisation machine needs at least 1 factor");
  return std::min(extent({fields, k}), kMostValues) + 1;
}

}  // namespace

struct FieldAwareMachine::Own final : Scratch {
  explicit Own(std::size_t fields) : finder(fields) {}

  // For a row of so many fields (kernels/field_factors.h).
  float* sums_for(std::size_t count, std::size_t k) { return grown(sums, (count * count + 1) * k); }

  FieldFinder finder;
  RowFields fields = {};  // of the row whose output was asked for last
  AlignedArray<float> sums;
  std::optional<BatchColumns> columns;
};

FieldAwareMachine::FieldAwareMachine(std::vector<std::uint16_t> field_of, std::size_t k,
                                     std::string_view loss, double l2, bool intercept_first,
                                     Isa isa)
    : ColumnwiseModel(
          "a field-aware factorisation machine",
          {field_of.size(), 1, {width_of(fields_in(field_of), k), 1}, intercept_first, true, 1},
          loss, l2, isa),
      field_of_(std::move(field_of)),
      k_(k) {}

std::unique_ptr<SparseModel> FieldAwareMachine::for_ordered(const OrderedRows& rows) const {
  return std::make_unique<FieldAwareMachine>(rows.renumbered(field_of_), k_, loss_.name, l2_, true,
                                             isa_);
}

std::unique_ptr<Workspace> FieldAwareMachine::make_workspace() const {
  return std::make_unique<Own>((shape_.width - 1) / k_);
}

float FieldAwareMachine::output_of(const float* theta, std::size_t stride, const SparseRows& row,
                                   std::int64_t end, Own& own) const {
  own.fields = own.finder.find(field_of_.data(), row);
  float* sums = own.sums_for(own.fields.count, k_);
  return field_factor_kernels(isa_).output(theta + columns(), theta + intercepts(),
                                           kernel_shape(stride), row, own.fields, end, sums);
}

void FieldAwareMachine::outputs_of(const float* theta, const SparseRows& rows, std::size_t count,
                                   float* out, Workspace& workspace) const {
  auto& own = static_cast<Own&>(workspace);
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = output_of(theta, 0, rows.from(i), rows.offsets[count], own);
  }
}

void FieldAwareMachine::add_gradient(const float* theta, const SparseRows& rows, std::size_t,
                                     const float* residuals, float scale, float* gradient,
                                     Workspace& workspace) const {
  auto& own = static_cast<Own&>(workspace);
  field_factor_kernels(isa_).add(theta + columns(), kernel_shape(0), rows, own.fields,
                                 own.sums.data(), scale * *residuals, nullptr,
                                 gradient + columns());
}

// A batch's gradient is that of the parameters as they were before it: of one row it is added as it
// is found, since no column comes again there, of more it is summed up first, row by row.
float FieldAwareMachine::update(const SparseUpdate& update, const BatchView& batch,
                                Workspace& workspace) const {
  const FieldFactorKernels& kernels = field_factor_kernels(isa_);
  const FactorKernels& steps = factor_kernels(isa_);
  const SparseKernels& sparse = sparse_kernels(isa_);
  auto& own = static_cast<Own&>(workspace);
  float* records = update.theta + columns();
  float* b = update.theta + intercepts();
  float* o = own.outputs_for(1);
  const bool adagrad = update.rule.is(kArithmetic<Adagrad>);
  const FieldShape shape = kernel_shape(adagrad ? update.stride : 0);
  const std::int64_t end = batch.sparse.offsets[batch.size];

  float check = 0;
  std::uint64_t t = update.t;
  for (std::size_t first = 0; first < batch.size; first += update.batch_size, ++t) {
    const std::size_t count = std::min(update.batch_size, batch.size - first);
    const SparseRows rows = batch.sparse.from(first);
    const Coefficients c = update.rule.coefficients({t});
    const float share = 1.0f / static_cast<float>(count);
    const std::int32_t* places = nullptr;
    float* gradient = nullptr;
    if (count > 1) {
      if (!own.columns) own.columns.emplace(features_);
      own.columns->collect(rows, count);
      places = own.columns->of_entry();
      gradient = own.gradient_for(std::bit_ceil(own.columns->size() * shape_.width));
    }
    float residual = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const SparseRows row = rows.from(i);
      *o = output_of(update.theta, shape.stride, row, end, own);
      tell_logits(batch, first + i, 1, o);
      check += residuals(o, 1, batch.targets.from(first + i), update.loss);
      residual += *o;
      float* sums = own.sums.data();
      if (count > 1) {
        kernels.add(records, shape, row, own.fields, sums, share * *o,
                    places + (row.offsets[0] - rows.offsets[0]), gradient);
      } else if (adagrad) {
        kernels.adagrad_racy(records, shape, row, own.fields, sums, *o, c.lr, c.epsilon);
      } else {
        kernels.add_racy(records, shape, row, own.fields, sums, -c.lr * *o);
      }
    }
    if (count > 1) {
      const BatchColumns& found = *own.columns;
      if (adagrad) {
        steps.adagrad_racy(records, update.stride, shape.width, found.columns(), found.size(),
                           gradient, c.lr, c.epsilon);
      } else {
        steps.sgd_racy(records, shape.width, found.columns(), found.size(), gradient, c.lr);
      }
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

}  // namespace leashed
