#include "leashed/columns/sparse_model.h"

#include <algorithm>
#include <string>

#include "leashed/base/error.h"
#include "leashed/base/extent.h"
#include "leashed/update/rule.h"
#include "leashed/update/rules.h"

namespace leashed {

float* SparseModel::Scratch::gradient_for(std::size_t n) {
  if (gradient.size() < n) {
    gradient = AlignedArray<float>(n);
    std::fill_n(gradient.data(), n, 0.0f);
  }
  return gradient.data();
}

SparseModel::SparseModel(const char* what, const Form& form, std::string_view loss, double l2,
                         Isa isa)
    : features_(form.features),
      outputs_(form.outputs),
      shape_(form.shape),
      loss_(find_loss(loss, outputs_, isa)),
      l2_(l2),
      intercepts_first_(form.intercepts_first),
      trains_intercepts_(form.trains_intercepts),
      isa_(isa),
      micro_batch_(form.micro_batch) {
  if (features_ == 0 || outputs_ == 0) {
    throw Error(std::string(what) + " needs at least 1 feature and 1 output");
  }
  if (extent({features_, shape_.width}) > kMostValues) {
    throw Error(std::string(what) + " of " + std::to_string(features_) + " features and " +
                std::to_string(shape_.width) +
                " parameters for each is too large for any memory; make it smaller");
  }
  const std::size_t dimension = shape_.dimension(features_);
  describe({.dimension = dimension,
            .features = features_,
            .classes = loss_.classes(outputs_),
            .values = loss_.values(outputs_),
            .gives_logits = leashed::gives_logits(loss_, outputs_),
            .block_ends = {intercepts_first_ ? columns() : intercepts(), dimension},
            .l2 = l2_,
            .curvature = loss_.curvature});
}

bool ColumnwiseModel::takes(const Rule& rule) const {
  return rule.sparse() &&
         (rule.is(kArithmetic<Sgd>) || (rule.is(kArithmetic<Adagrad>) && l2_ == 0));
}

double SparseModel::begin_gradient(const float* theta, float* gradient, Workspace&) const {
  const float* w = theta + columns();
  float* dw = gradient + columns();
  const std::size_t size = features_ * shape_.width;
  const auto l2 = static_cast<float>(l2_);
  double penalty = 0;
  if (l2 > 0) {
    for (std::size_t i = 0; i < size; ++i) {
      dw[i] = l2 * w[i];
      penalty += double{w[i]} * double{w[i]};
    }
  } else {
    std::fill_n(dw, size, 0.0f);
  }
  std::fill_n(gradient + intercepts(), shape_.intercepts, 0.0f);
  return penalty;
}

float SparseModel::gradient(const float* theta, const BatchView& batch, float* gradient,
                            Workspace& workspace, const std::atomic<bool>& cancel) const {
  float* o = static_cast<Scratch&>(workspace).outputs_for(micro_batch_ * outputs_);
  const double penalty = begin_gradient(theta, gradient, workspace);
  const float scale = 1.0f / static_cast<float>(batch.size);
  double loss = 0;
  for (std::size_t first = 0; first < batch.size; first += micro_batch_) {
    if (cancel.load(std::memory_order_relaxed)) break;
    const std::size_t count = std::min(micro_batch_, batch.size - first);
    const SparseRows rows = batch.sparse.from(first);
    outputs_of(theta, rows, count, o, workspace);
    tell_logits(batch, first, count, o);
    loss += loss_.residuals(o, o, count, outputs_, outputs_, batch.targets.from(first), 1);
    add_gradient(theta, rows, count, o, scale, gradient, workspace);
    if (trains_intercepts_) add_residuals(gradient + intercepts(), outputs_, o, count, scale);
  }
  return static_cast<float>(loss / static_cast<double>(batch.size) + 0.5 * l2_ * penalty);
}

float SparseModel::residuals(float* outputs, std::size_t count, const Targets& targets,
                             double* loss) const {
  double sum = 0;
  float check = 0;
  if (loss_.residuals_alone && outputs_ == 1) {
    check = loss_.residuals_alone(outputs, count, targets, loss ? &sum : nullptr);
  } else {
    sum = loss_.residuals(outputs, outputs, count, outputs_, outputs_, targets, 1);
    check = static_cast<float>(sum);
  }
  if (loss) *loss += sum;
  return check;
}

void SparseModel::add_residuals(float* sums, std::size_t n, const float* residuals,
                                std::size_t rows, float scale) {
  for (std::size_t k = 0; k < n; ++k) {
    float sum = 0;
    for (std::size_t i = 0; i < rows; ++i) sum += residuals[i * n + k];
    sums[k] += scale * sum;
  }
}

SparseRows SparseModel::one_row() {
  static constexpr std::int64_t offsets[2] = {0, 1};
  static constexpr std::int32_t column = 0;
  static constexpr float one = 1;
  return {offsets, &column, &one};
}

Evaluation SparseModel::evaluate(const float* theta, const BatchView& batch,
                                 Workspace& workspace) const {
  float* o = static_cast<Scratch&>(workspace).outputs_for(kMicroBatch * outputs_);
  Evaluation sums;
  sums.rows = batch.size;
  for (std::size_t first = 0; first < batch.size; first += kMicroBatch) {
    const std::size_t count = std::min(kMicroBatch, batch.size - first);
    const Targets targets = batch.targets.from(first);
    outputs_of(theta, batch.sparse.from(first), count, o, workspace);
    tell_logits(batch, first, count, o);
    if (loss_.correct) {
      sums.correct += loss_.correct(o, count, outputs_, outputs_, targets.labels);
    }
    sums.loss_sum += loss_.residuals(o, o, count, outputs_, outputs_, targets, 1);
  }
  return sums;
}

void SparseModel::predict(const float* theta, const SparseRows& rows, std::size_t size,
                          float* out) const {
  const auto workspace = make_workspace();
  for (std::size_t first = 0; first < size; first += kMicroBatch) {
    outputs_of(theta, rows.from(first), std::min(kMicroBatch, size - first), out + first * outputs_,
               *workspace);
  }
  if (loss_.predict) loss_.predict(out, size, outputs_, outputs_);
}

}  // namespace leashed
