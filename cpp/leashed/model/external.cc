#include "leashed/model/external.h"

#include <algorithm>
#include <cstring>

#include "leashed/base/aligned.h"

namespace leashed {

namespace {

// The rows of a batch that is soon to come, where they are few enough to stay in a core's cache: a
// function that walks along one row after another would wait for memory at the start of each.
void fetch(const float* const* rows, std::size_t size, std::size_t features) {
  constexpr std::size_t kMost = std::size_t{384} << 10;
  constexpr std::size_t kLine = kCacheLine / sizeof(float);
  if (!rows || size * features * sizeof(float) > kMost) return;
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = 0; j < features; j += kLine) __builtin_prefetch(rows[i] + j, 0, 2);
  }
}

}  // namespace

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
  fetch(batch.next_rows, batch.size, parts_.features);
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
