// NumPy arrays in and out. Python has validated them; a mismatch here is a programming error that
// pybind11 reports as TypeError.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace leashed {

namespace py = pybind11;

using FloatArray = py::array_t<float, py::array::c_style>;
using LabelArray = py::array_t<std::int32_t, py::array::c_style>;
using UserArray = py::array_t<std::uint64_t, py::array::c_style>;

// An array that owns the vector's memory: no copy.
template <class T>
py::array_t<T> to_array(std::vector<T> values) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  T* data = owned->data();
  const std::size_t size = owned->size();
  const py::capsule owner(owned.release(), [](void* p) { delete static_cast<std::vector<T>*>(p); });
  return py::array_t<T>(static_cast<py::ssize_t>(size), data, owner);
}

inline void make_read_only(py::array& array) {
  py::detail::array_proxy(array.ptr())->flags &= ~py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
}

inline void require_length(const py::array& array, std::size_t length, const char* name) {
  if (array.ndim() != 1 || static_cast<std::size_t>(array.size()) != length) {
    throw py::value_error(std::string(name) + " must be one-dimensional, of length " +
                          std::to_string(length));
  }
}

}  // namespace leashed
