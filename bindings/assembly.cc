#include "assembly.h"

#include "data.h"
#include "sparse.h"

namespace leashed {

Assembly assembly_of(const GradientSource& source, const FloatArray& theta, const py::object& x,
                     const py::array& y, const std::optional<FloatArray>& weights,
                     const PyChoices& choices, std::uint64_t seed) {
  require_length(theta, source.dimension(), "theta");
  Assembly parts{source,
                 theta.data(),
                 view_of(source, x, y, weights),
                 std::nullopt,
                 nullptr,
                 to_choice(choices.discipline),
                 to_choice(choices.rule),
                 to_choice(choices.staleness)};
  if (parts.data.sparse) {
    parts.ordered = py::cast<const PySparseRows&>(x).ordered(parts.data.sparse, seed);
  }
  return parts;
}

std::optional<Recording> to_recording(const std::optional<PyRecording>& record) {
  if (!record) return std::nullopt;
  const auto& [path, header, start] = *record;
  return Recording{path, header, {start.data(), start.data() + start.size()}};
}

}  // namespace leashed
