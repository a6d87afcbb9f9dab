#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstring>
#include <vector>

#include "data.h"
#include "leashed/data/sampler.h"
#include "parts.h"

namespace py = pybind11;

namespace leashed {
namespace {

// Up to so many bytes are copied without letting the GIL go: having it again can take longer.
constexpr std::size_t kQuickCopy = 1 << 17;

std::vector<std::size_t> batch_rows(std::uint64_t seed, std::size_t rows, std::size_t batch_size,
                                    std::uint64_t k) {
  require_some(rows, "rows");
  require_some(batch_size, "batch_size");
  std::vector<std::size_t> batch(batch_size);
  Sampler(seed, rows, batch_size).batch(k, batch.data());
  return batch;
}

py::array batch(const py::array& values, std::uint64_t seed, std::size_t batch_size,
                std::uint64_t k) {
  if (values.ndim() == 0 || !(values.flags() & py::array::c_style)) {
    throw py::value_error("values must be a C-contiguous array of rows");
  }
  require_some(static_cast<std::size_t>(values.shape(0)), "the number of rows of values");
  require_some(batch_size, "batch_size");
  std::vector<py::ssize_t> shape(values.shape(), values.shape() + values.ndim());
  const auto rows = static_cast<std::size_t>(shape[0]);
  shape[0] = static_cast<py::ssize_t>(batch_size);
  py::array result(values.dtype(), shape);
  const std::size_t bytes = static_cast<std::size_t>(result.nbytes()) / batch_size;
  const auto* from = static_cast<const char*>(values.data());
  auto* to = static_cast<char*>(result.mutable_data());
  const auto copy = [&] {
    for (const std::size_t row : batch_rows(seed, rows, batch_size, k)) {
      std::memcpy(to, from + row * bytes, bytes);
      to += bytes;
    }
  };
  if (bytes * batch_size <= kQuickCopy) {
    copy();
  } else {
    const py::gil_scoped_release release;
    copy();
  }
  return result;
}

}  // namespace

void bind_batches(py::module_& m) {
  m.def("batch_rows", batch_rows, py::arg("seed"), py::arg("rows"), py::arg("batch_size"),
        py::arg("k"), "Row numbers of batch k: a function of (seed, k) alone.");
  m.def("batch", batch, py::arg("values"), py::arg("seed"), py::arg("batch_size"), py::arg("k"),
        "A copy of the rows that batch k has, of a C-contiguous array of any type.");
}

}  // namespace leashed
