#include "read.h"

#include <pybind11/gil_safe_call_once.h>

#include "parts.h"

namespace leashed {

// Made as namedtuple's _make does: its own __new__ is Python code.
py::object to_update(const Publication& publication) {
  static py::gil_safe_call_once_and_store<py::object> storage;
  const py::object& type =
      storage
          .call_once_and_store_result(
              [] { return py::object(py::module_::import("leashed.vector").attr("Update")); })
          .get_stored();
  const py::tuple values = py::make_tuple(
      publication.published, publication.staleness_compute + publication.staleness_schedule,
      publication.tries);
  const py::tuple arguments = py::make_tuple(values);
  PyObject* made =
      PyTuple_Type.tp_new(reinterpret_cast<PyTypeObject*>(type.ptr()), arguments.ptr(), nullptr);
  if (!made) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(made);
}

void bind_read(py::module_& m) {
  py::class_<Read>(m, "Read")
      .def("__enter__", &Read::enter)
      .def("__exit__", &Read::exit)
      .def_property_readonly("t", &Read::t, "Version of the vector entered last.");
}

}  // namespace leashed
