#include <pybind11/stl.h>

#include "arrays.h"
#include "leashed/model/tracked_source.h"
#include "parts.h"
#include "running.h"

namespace leashed {
namespace {

std::unique_ptr<TrackedSource> track(const GradientSource& source, std::size_t workers,
                                     const std::optional<FloatArray>& values, std::uint64_t batches,
                                     std::uint64_t least) {
  RunningStatistics begun{{}, batches, least};
  if (values) {
    const auto blocks = source.statistics();
    const std::size_t size = blocks.empty() ? 0 : blocks.back().offset + blocks.back().size;
    require_length(*values, size, "values");
    begun.values.assign(values->data(), values->data() + size);
  } else if (batches > 0) {
    throw py::value_error("values must be given where batches is not 0");
  }
  return std::make_unique<TrackedSource>(source, workers, std::move(begun));
}

PyRunning running(const TrackedSource& source) {
  RunningStatistics all;
  {
    const py::gil_scoped_release release;
    all = *source.running();
  }
  return to_running(std::move(all));
}

}  // namespace

void bind_tracked(py::module_& m) {
  py::class_<TrackedSource, GradientSource>(m, "TrackedSource")
      .def(py::init(&track), py::arg("source"), py::arg("workers"),
           py::arg("values").noconvert() = py::none(), py::arg("batches") = 0, py::arg("least") = 0,
           py::keep_alive<1, 2>())
      .def("running", running);
}

}  // namespace leashed
