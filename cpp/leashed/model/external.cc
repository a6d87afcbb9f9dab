#include "leashed/model/external.h"

#include <cstring>

#include "leashed/base/aligned.h"
#include "leashed/base/error.h"
#include "leashed/model/flat_batch.h"

namespace leashed {

ExternalModel::ExternalModel(ExternalShape shape, bool gives_logits) : shape_(std::move(shape)) {
  for (const std::size_t table : shape_.features_of_tables) {
    if (table >= shape_.tables.size()) throw Error("a feature is of a table that there is not");
  }
  describe({.dimension = shape_.dimension,
            .features = shape_.features,
            .classes = shape_.targets ? 0 : ModelDescription::kAnyLabel,
            .classifies = false,
            .takes_weights = false,
            .gives_logits = gives_logits,
            .block_ends = shape_.variable_ends,
            .tables = shape_.tables,
            .features_of_tables = shape_.features_of_tables});
}

class ExternalSource::Scratch final : public Workspace {
 public:
  explicit Scratch(std::size_t bytes) : memory(bytes) {
    if (bytes) std::memset(memory.data(), 0, bytes);
  }

  // The batch as the contract has it: rows by number from the lowest on.
  float call(ExternalFunction f, const ExternalShape& shape, void* user_data, const float* theta,
             const BatchView& batch, float* gradient) {
    examples.number(batch, shape.features);
    const void* y =
        shape.targets ? static_cast<const void*>(batch.targets.values) : batch.targets.labels;
    return f(theta, examples.base, examples.numbers.data(), y,
             static_cast<std::int64_t>(batch.size), gradient, memory.data(), user_data);
  }

  AlignedArray<char> memory;
  NumberedExamples examples;
  AlignedArray<float> unused;  // the gradient of an evaluation without a loss function
};

std::unique_ptr<Workspace> ExternalSource::make_workspace() const {
  return std::make_unique<Scratch>(parts_.workspace_bytes);
}

float ExternalSource::gradient(const float* theta, const BatchView& batch, float* gradient,
                               Workspace& workspace, const std::atomic<bool>&) const {
  fetch_examples(batch.next_rows, batch.size, features());
  return static_cast<Scratch&>(workspace).call(parts_.gradient, shape(), parts_.gradient_data,
                                               theta, batch, gradient);
}

Evaluation ExternalSource::evaluate(const float* theta, const BatchView& batch,
                                    Workspace& workspace) const {
  auto& scratch = static_cast<Scratch&>(workspace);
  float mean = 0;
  if (parts_.loss) {
    mean = scratch.call(parts_.loss, shape(), parts_.loss_data, theta, batch, nullptr);
  } else {
    if (!scratch.unused) scratch.unused = AlignedArray<float>(dimension());
    mean = scratch.call(parts_.gradient, shape(), parts_.gradient_data, theta, batch,
                        scratch.unused.data());
  }
  return {static_cast<double>(mean) * static_cast<double>(batch.size), 0, batch.size};
}

}  // namespace leashed
