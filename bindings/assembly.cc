#include "assembly.h"

#include "data.h"
#include "leashed/columns/sparse_model.h"
#include "sparse.h"
#include "stream.h"

namespace leashed {
namespace {

// Of a training on a stream; null: its rows lie in memory.
const PyStreamedRows* streamed_of(const GradientSource& source, const py::object& x) {
  if (!py::isinstance<PyStreamedRows>(x)) return nullptr;
  const auto& rows = py::cast<const PyStreamedRows&>(x);
  const RowLayout& layout = rows.data.stream->layout();
  const auto* const sparse = dynamic_cast<const SparseModel*>(&source);
  const bool suits = sparse ? layout.columns == source.features() &&
                                  (layout.distinct_columns || !sparse->takes_distinct_columns())
                            : layout.columns == 0 && layout.numbers == source.features() &&
                                  rows.data.features.size() == source.features_of_tables().size();
  if (!suits || layout.classes != (source.classes() > 0) || layout.values != source.values()) {
    throw py::value_error("x must have the columns or numbers, ids and labels that source takes");
  }
  return &rows;
}

}  // namespace

Assembly assembly_of(const GradientSource& source, const FloatArray& theta, const py::object& x,
                     const py::array& y, const std::optional<FloatArray>& weights,
                     const PyChoices& choices, std::uint64_t seed) {
  require_length(theta, source.dimension(), "theta");
  const PyStreamedRows* const streamed = streamed_of(source, x);
  Assembly parts{
      source,
      theta.data(),
      streamed ? DatasetView{nullptr, {}, 0, source.features()} : view_of(source, x, y, weights),
      std::nullopt,
      nullptr,
      to_choice(choices.discipline),
      to_choice(choices.rule),
      to_choice(choices.staleness)};
  if (streamed) parts.stream = &streamed->data;
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
