// A gradient from Python, refused by name where it is not exactly what the engine reads: a
// conversion would cost a hidden copy in every step.
#pragma once

#include <string>
#include <tuple>

#include "arrays.h"
#include "leashed/discipline/publication.h"

namespace leashed {

inline std::string described(py::handle value) {
  std::string text = py::str(py::type::handle_of(value).attr("__name__"));
  if (py::hasattr(value, "device")) {
    text += " on device " + std::string(py::str(value.attr("device")));
  }
  return text;
}

template <class T>
std::string type_name() {
  return py::str(py::dtype::of<T>().attr("name"));
}

// The memory of a contiguous array of T with one dimension; its length in `size`, which it must be
// where it is not 0.
template <class T>
const T* values_of(py::handle value, const char* name, std::size_t& size) {
  const std::string argument(name);
  if (!py::isinstance<py::array>(value)) {
    throw py::type_error(argument + " must be a NumPy array of dtype " + type_name<T>() + ", got " +
                         described(value) +
                         "; np.asarray makes one (a tensor on a device: .cpu().numpy())");
  }
  const auto array = py::reinterpret_borrow<py::array>(value);
  if (!array.dtype().is(py::dtype::of<T>()) && !array.dtype().equal(py::dtype::of<T>())) {
    throw py::type_error(argument + " must have dtype " + type_name<T>() + ", got " +
                         std::string(py::str(array.dtype())) + "; convert it with .astype(np." +
                         type_name<T>() + ")");
  }
  if (array.ndim() != 1) {
    throw py::value_error(argument + " must be one-dimensional, got shape " +
                          std::string(py::str(array.attr("shape"))) + "; flatten it with .ravel()");
  }
  if (size != 0 && static_cast<std::size_t>(array.size()) != size) {
    throw py::value_error(argument + " must have length " + std::to_string(size) + ", got " +
                          std::to_string(array.size()));
  }
  if (array.size() > 1 && array.strides(0) != static_cast<py::ssize_t>(sizeof(T))) {
    throw py::value_error(argument + " must be contiguous, got strides " +
                          std::string(py::str(array.attr("strides"))) +
                          "; np.ascontiguousarray copies it");
  }
  size = static_cast<std::size_t>(array.size());
  return static_cast<const T*>(array.data());
}

// Where the pieces of a gradient are: (address, begin, end) each. For leashed.torch, which has
// checked what lies there.
using Places = std::vector<std::tuple<std::uintptr_t, std::size_t, std::size_t>>;

inline std::vector<GradientPiece> pieces_at(const Places& places, std::size_t dimension) {
  std::vector<GradientPiece> pieces;
  pieces.reserve(places.size());
  std::size_t last = 0;
  for (const auto& [address, begin, end] : places) {
    if (begin < last || end < begin || end > dimension) {
      throw py::value_error("pieces must ascend within the parameters");
    }
    pieces.push_back({reinterpret_cast<const float*>(address), begin, end});
    last = end;
  }
  return pieces;
}

}  // namespace leashed
