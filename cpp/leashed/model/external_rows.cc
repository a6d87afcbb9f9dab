#include "leashed/model/external_rows.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

#include "leashed/base/aligned.h"
#include "leashed/model/flat_batch.h"
#include "leashed/update/kernels.h"

namespace leashed {
namespace {

// Room for at least so many, one at least, so that its address is never null.
template <class T>
void reserve(AlignedArray<T>& array, std::size_t n) {
  if (array.size() < n || !array) array = AlignedArray<T>(std::max<std::size_t>(n, 1));
}

}  // namespace

class ExternalRowsSource::Scratch final : public Workspace {
 public:
  explicit Scratch(std::size_t bytes) : memory_(bytes) {
    if (bytes) std::memset(memory_.data(), 0, bytes);
  }

  void take(const BatchView& batch, const ExternalShape& shape) {
    examples_.number(batch, shape.features);
    layout_.measure(batch);
    reserve(offsets_, layout_.offsets());
    reserve(places_, layout_.entries());
    reserve(weights_, layout_.entries());
    reserve(values_, layout_.floats());
    layout_.copy(batch, shape.features_of_tables, Counted::through,
                 {offsets_.data(), places_.data(), weights_.data(), values_.data()});
  }

  // Of the batch that was taken; nothing is written where `gradient` is null.
  float call(const Function& f, const float* theta, const BatchView& batch, const std::int32_t* y,
             float* gradient, float* logits) {
    if (gradient) {
      reserve(row_gradients_, layout_.floats());
      std::fill_n(row_gradients_.data(), layout_.floats(), 0.0f);
    }
    return f.call(theta, examples_.base, examples_.numbers.data(), y,
                  static_cast<std::int64_t>(batch.size), offsets_.data(), places_.data(),
                  weights_.data(), layout_.counts().data(), values_.data(), gradient,
                  gradient ? row_gradients_.data() : nullptr, logits, memory_.data(), f.user_data);
  }

  std::span<const float> row_gradients() const { return {row_gradients_.data(), layout_.floats()}; }

  // For the gradient of an evaluation without a loss function.
  float* unused(std::size_t dimension) {
    reserve(unused_, dimension);
    return unused_.data();
  }

 private:
  AlignedArray<char> memory_;
  NumberedExamples examples_;
  FlatLayout layout_;
  AlignedArray<std::int64_t> offsets_, places_;
  AlignedArray<float> weights_, values_, row_gradients_, unused_;
};

std::unique_ptr<Workspace> ExternalRowsSource::make_workspace() const {
  return std::make_unique<Scratch>(parts_.workspace_bytes);
}

float ExternalRowsSource::gradient(const float* theta, const BatchView& batch, float* gradient,
                                   Workspace& workspace, const std::atomic<bool>&) const {
  fetch_examples(batch.next_rows, batch.size, features());
  auto& scratch = static_cast<Scratch&>(workspace);
  scratch.take(batch, shape());
  const float loss =
      scratch.call(parts_.gradient, theta, batch, batch.targets.labels, gradient, nullptr);
  const std::span<const float> rows = scratch.row_gradients();
  // A row would keep what is not finite, beyond the end of the run.
  if (update_kernels().first_not_finite(rows.data(), rows.size()) < rows.size()) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  add_row_gradients(rows.data(), batch);
  return loss;
}

Evaluation ExternalRowsSource::evaluate(const float* theta, const BatchView& batch,
                                        Workspace& workspace) const {
  auto& scratch = static_cast<Scratch&>(workspace);
  scratch.take(batch, shape());
  const bool has_loss = parts_.loss.call != nullptr;
  const float mean =
      scratch.call(has_loss ? parts_.loss : parts_.gradient, theta, batch, batch.targets.labels,
                   has_loss ? nullptr : scratch.unused(dimension()), nullptr);
  if (batch.logits) scratch.call(parts_.logits, theta, batch, nullptr, nullptr, batch.logits);
  return {static_cast<double>(mean) * static_cast<double>(batch.size), 0, batch.size};
}

void ExternalRowsSource::logits(const float* theta, const BatchView& batch, float* out,
                                Workspace& workspace) const {
  auto& scratch = static_cast<Scratch&>(workspace);
  scratch.take(batch, shape());
  scratch.call(parts_.logits, theta, batch, nullptr, nullptr, out);
}

}  // namespace leashed
