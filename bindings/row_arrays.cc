#include "row_arrays.h"

namespace leashed {

py::object RowArrays::show(std::span<const TableShape> tables, std::size_t batch) const {
  static py::gil_safe_call_once_and_store<py::object> storage;
  const py::object& type =
      storage
          .call_once_and_store_result([] {
            return py::object(py::module_::import("leashed.models.external").attr("BatchRows"));
          })
          .get_stored();
  const auto begins = layout_.entry_begins();
  const std::size_t features = begins.size() - 1;
  py::tuple values(tables.size()), gradients(tables.size());
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const std::size_t begin = layout_.float_begins()[t];
    const std::vector<py::ssize_t> shape{layout_.counts()[t],
                                         static_cast<py::ssize_t>(tables[t].dim)};
    values[t] = values_.part(begin, shape);
    gradients[t] = gradients_.part(begin, shape, true);
  }
  py::tuple places(features), offsets(features), weights(features);
  for (std::size_t f = 0; f < features; ++f) {
    const std::vector<py::ssize_t> entries{static_cast<py::ssize_t>(begins[f + 1] - begins[f])};
    places[f] = places_.part(begins[f], entries);
    weights[f] = weights_.part(begins[f], entries);
    offsets[f] = offsets_.part(f * (batch + 1), {static_cast<py::ssize_t>(batch + 1)});
  }
  return type(values, places, offsets, weights, gradients);
}

}  // namespace leashed
