// ParameterVector for Python.
#include "leashed/backend/vector_engine.h"
#include "parts.h"
#include "read.h"

namespace leashed {
namespace {

py::object update_vector(VectorEngine& vector, const FloatArray& gradient, float lr,
                         double persistence, std::uint64_t t_read) {
  require_length(gradient, vector.dimension(), "gradient");
  const float* g = gradient.data();
  const Publication result = [&] {
    const py::gil_scoped_release release;
    return vector.update(g, lr, persistence, t_read);
  }();
  return to_update(result);
}

}  // namespace

void bind_parameter_vector(py::module_& m) {
  py::class_<VectorEngine, std::shared_ptr<VectorEngine>>(m, "ParameterVector")
      .def(py::init([](const FloatArray& theta, std::size_t workers, std::size_t readers) {
             return std::make_shared<VectorEngine>(
                 theta.data(), static_cast<std::size_t>(theta.size()), workers, readers);
           }),
           py::arg("theta").noconvert(), py::arg("workers"), py::arg("readers"))
      .def("read", [](const std::shared_ptr<VectorEngine>& v) { return new_read(v); })
      .def("update", &update_vector, py::arg("gradient").noconvert(), py::arg("lr"),
           py::arg("persistence"), py::arg("t_read"))
      .def_property_readonly("t", &VectorEngine::t)
      .def_property_readonly("length", &VectorEngine::dimension)
      .def_property_readonly("live", &VectorEngine::live)
      .def_property_readonly("capacity", &VectorEngine::capacity);
}

}  // namespace leashed
