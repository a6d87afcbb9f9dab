#include "leashed/model/sparse_linear.h"

#include <algorithm>
#include <string>

#include "leashed/base/aligned.h"
#include "leashed/base/error.h"
#include "leashed/base/extent.h"
#include "leashed/model/kernels/sparse.h"

namespace leashed {
namespace {

constexpr std::size_t kMicroBatch = 64;  // rows between two looks at whether to go on
constexpr std::size_t kPadding = 16;     // of the outputs, for kernels that write whole vectors

struct SparseWorkspace final : Workspace {
  // Outputs of so many rows, then their residuals. They only ever grow.
  float* outputs_for(std::size_t n) {
    if (outputs.size() < n + kPadding) outputs = AlignedArray<float>(2 * n + kPadding);
    return outputs.data();
  }
  // Zeros, one for each parameter.
  float* gradient_for(std::size_t n) {
    if (gradient.size() < n) {
      gradient = AlignedArray<float>(n);
      std::fill_n(gradient.data(), n, 0.0f);
    }
    return gradient.data();
  }

  AlignedArray<float> outputs, gradient;
};

// b += scale · the residuals' sums.
void add_bias(float* b, std::size_t n, const float* residuals, std::size_t rows, float scale) {
  for (std::size_t k = 0; k < n; ++k) {
    float sum = 0;
    for (std::size_t i = 0; i < rows; ++i) sum += residuals[i * n + k];
    b[k] += scale * sum;
  }
}

}  // namespace

SparseLinear::SparseLinear(std::size_t features, std::size_t outputs, std::string_view loss,
                           double l2, bool trains_bias, bool bias_first, Isa isa)
    : features_(features),
      outputs_(outputs),
      loss_(find_loss(loss, outputs, isa)),
      l2_(l2),
      trains_bias_(trains_bias),
      bias_first_(bias_first),
      isa_(isa) {
  if (features == 0 || outputs == 0) {
    throw Error("a linear model needs at least 1 feature and 1 output");
  }
  if (extent({features, outputs}) > kMostValues) {
    throw Error("a linear model of " + std::to_string(features) + " features and " +
                std::to_string(outputs) + " outputs is too large for any memory; make it smaller");
  }
}

std::vector<std::size_t> SparseLinear::block_ends() const {
  return {bias_first_ ? outputs_ : bias(), dimension()};
}

std::unique_ptr<Workspace> SparseLinear::make_workspace() const {
  return std::make_unique<SparseWorkspace>();
}

float SparseLinear::gradient(const float* theta, const BatchView& batch, float* gradient,
                             Workspace& workspace, const std::atomic<bool>& cancel) const {
  const SparseKernels& sparse = sparse_kernels(isa_);
  float* o = static_cast<SparseWorkspace&>(workspace).outputs_for(kMicroBatch * outputs_);
  const float* w = theta + weights();
  float* dw = gradient + weights();
  const std::size_t size = features_ * outputs_;
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
  std::fill_n(gradient + bias(), outputs_, 0.0f);
  const float scale = 1.0f / static_cast<float>(batch.size);
  double loss = 0;
  for (std::size_t first = 0; first < batch.size; first += kMicroBatch) {
    if (cancel.load(std::memory_order_relaxed)) break;
    const std::size_t count = std::min(kMicroBatch, batch.size - first);
    const SparseRows rows = batch.sparse.from(first);
    sparse.outputs(w, theta + bias(), outputs_, rows, count, o);
    loss += loss_.residuals(o, o, count, outputs_, outputs_, batch.targets.from(first), 1);
    sparse.add(dw, outputs_, rows, count, o, scale);
    if (trains_bias_) add_bias(gradient + bias(), outputs_, o, count, scale);
  }
  return static_cast<float>(loss / static_cast<double>(batch.size) + 0.5 * l2_ * penalty);
}

bool SparseLinear::updates_in_place(const Rule& rule) const {
  return rule.sparse() && (rule.is<Sgd>() || (rule.is<Adagrad>() && l2_ == 0));
}

float SparseLinear::update(const SparseUpdate& update, const BatchView& batch,
                           Workspace& workspace) const {
  const SparseKernels& sparse = sparse_kernels(isa_);
  auto& own = static_cast<SparseWorkspace&>(workspace);
  float* w = update.theta + weights();
  float* b = update.theta + bias();
  float* o = own.outputs_for((update.batch_size + 1) * outputs_);
  float* sums = o + update.batch_size * outputs_;
  const bool adagrad = update.rule.is<Adagrad>();
  float* gradient = adagrad ? own.gradient_for(dimension()) : nullptr;
  // An intercept is one column more, which every row has.
  const std::int64_t offsets[2] = {0, 1};
  const std::int32_t column = 0;
  const float one = 1;
  const SparseRows intercept{offsets, &column, &one};

  float check = 0;
  std::uint64_t t = update.t;
  for (std::size_t first = 0; first < batch.size; first += update.batch_size, ++t) {
    const std::size_t count = std::min(update.batch_size, batch.size - first);
    const SparseRows rows = batch.sparse.from(first);
    const Targets targets = batch.targets.from(first);
    sparse.outputs(w, b, outputs_, rows, count, o);
    double loss = 0;
    if (loss_.residuals_alone && outputs_ == 1) {
      check += loss_.residuals_alone(o, count, targets, update.loss ? &loss : nullptr);
    } else {
      loss = loss_.residuals(o, o, count, outputs_, outputs_, targets, 1);
      check += static_cast<float>(loss);
    }
    if (update.loss) *update.loss += loss;
    const Coefficients c = update.rule.coefficients({t});
    const float share = 1.0f / static_cast<float>(count);
    if (trains_bias_) {
      std::fill_n(sums, outputs_, 0.0f);
      add_bias(sums, outputs_, o, count, 1.0f);
    }
    if (adagrad) {
      float* dw = gradient + weights();
      float* db = gradient + bias();
      sparse.add(dw, outputs_, rows, count, o, share);
      sparse.adagrad_racy(w, update.stride, outputs_, rows, count, dw, c.lr, c.epsilon);
      if (!trains_bias_) continue;
      for (std::size_t k = 0; k < outputs_; ++k) db[k] = share * sums[k];
      sparse.adagrad_racy(b, update.stride, outputs_, intercept, 1, db, c.lr, c.epsilon);
    } else {
      sparse.add_racy(w, outputs_, rows, count, o, -c.lr * share);
      if (trains_bias_) sparse.add_racy(b, outputs_, intercept, 1, sums, -c.lr * share);
    }
  }
  return check;
}

Evaluation SparseLinear::evaluate(const float* theta, const BatchView& batch,
                                  Workspace& workspace) const {
  float* o = static_cast<SparseWorkspace&>(workspace).outputs_for(kMicroBatch * outputs_);
  Evaluation sums;
  sums.rows = batch.size;
  for (std::size_t first = 0; first < batch.size; first += kMicroBatch) {
    const std::size_t count = std::min(kMicroBatch, batch.size - first);
    const Targets targets = batch.targets.from(first);
    sparse_kernels(isa_).outputs(theta + weights(), theta + bias(), outputs_,
                                 batch.sparse.from(first), count, o);
    if (loss_.correct) {
      sums.correct += loss_.correct(o, count, outputs_, outputs_, targets.labels);
    }
    sums.loss_sum += loss_.residuals(o, o, count, outputs_, outputs_, targets, 1);
  }
  return sums;
}

void SparseLinear::predict(const float* theta, const SparseRows& rows, std::size_t size,
                           float* out) const {
  sparse_kernels(isa_).outputs(theta + weights(), theta + bias(), outputs_, rows, size, out);
  if (loss_.predict) loss_.predict(out, size, outputs_, outputs_);
}

}  // namespace leashed
