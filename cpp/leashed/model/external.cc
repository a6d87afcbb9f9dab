#include "leashed/model/external.h"

#include <algorithm>
#include <cstring>

#include "leashed/base/aligned.h"

namespace leashed {

class ExternalSource::Scratch final : public Workspace {
 public:
  explicit Scratch(std::size_t bytes) : memory(bytes) {
    if (bytes) std::memset(memory.data(), 0, bytes);
  }

  // The batch as the contract has it: rows by number from the lowest on.
  float call(ExternalFunction f, const Parts& parts, void* user_data, const float* theta,
             const BatchView& batch, float* gradient) {
    const float* base = *std::min_element(batch.rows, batch.rows + batch.size);
    rows.resize(batch.size);
    const auto features = static_cast<std::ptrdiff_t>(parts.features);
    for (std::size_t i = 0; i < batch.size; ++i) rows[i] = (batch.rows[i] - base) / features;
    const void* y =
        parts.targets ? static_cast<const void*>(batch.targets.values) : batch.targets.labels;
    return f(theta, base, rows.data(), y, static_cast<std::int64_t>(batch.size), gradient,
             memory.data(), user_data);
  }

  AlignedArray<char> memory;
  std::vector<std::int64_t> rows;
  AlignedArray<float> unused;  // the gradient of an evaluation without a loss function
};

std::unique_ptr<Workspace> ExternalSource::make_workspace() const {
  return std::make_unique<Scratch>(parts_.workspace_bytes);
}

float ExternalSource::gradient(const float* theta, const BatchView& batch, float* gradient,
                               Workspace& workspace, const std::atomic<bool>&) const {
  return static_cast<Scratch&>(workspace).call(parts_.gradient, parts_, parts_.gradient_data, theta,
                                               batch, gradient);
}

Evaluation ExternalSource::evaluate(const float* theta, const BatchView& batch,
                                    Workspace& workspace) const {
  auto& scratch = static_cast<Scratch&>(workspace);
  float mean = 0;
  if (parts_.loss) {
    mean = scratch.call(parts_.loss, parts_, parts_.loss_data, theta, batch, nullptr);
  } else {
    if (!scratch.unused) scratch.unused = AlignedArray<float>(parts_.dimension);
    mean = scratch.call(parts_.gradient, parts_, parts_.gradient_data, theta, batch,
                        scratch.unused.data());
  }
  return {static_cast<double>(mean) * static_cast<double>(batch.size), 0, batch.size};
}

}  // namespace leashed
