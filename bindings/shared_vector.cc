// SharedVector for Python. No call keeps the GIL: each may have to wait for its turn, and leaving
// gives memory back.
#include "choice.h"
#include "leashed/backend/shared_engine.h"
#include "parts.h"
#include "read.h"

namespace leashed {
namespace {

using Shared = std::shared_ptr<SharedEngine>;

SharedEngine::Parts parts_of(std::size_t dimension, const PyChoice& rule, const PyChoice& staleness,
                             double persistence) {
  return {dimension, to_choice(rule), to_choice(staleness), persistence};
}

Shared create(const std::string& name, const FloatArray& theta, std::size_t participants,
              bool in_place, const std::string& description, const PyChoice& rule,
              const PyChoice& staleness, double persistence) {
  const auto parts = parts_of(static_cast<std::size_t>(theta.size()), rule, staleness, persistence);
  const float* values = theta.data();
  const py::gil_scoped_release release;
  return SharedEngine::create(name, values, parts, participants, in_place, description);
}

// `choices` turns the description into (dimension, rule, staleness, persistence).
Shared attach(const std::string& name, const py::function& choices) {
  SharedVector vector = [&] {
    const py::gil_scoped_release release;
    return SharedVector::attach(name);
  }();
  const auto [dimension, rule, staleness, persistence] =
      py::cast<std::tuple<std::size_t, PyChoice, PyChoice, double>>(
          choices(py::bytes(std::string(vector.description()))));
  const auto parts = parts_of(dimension, rule, staleness, persistence);
  const py::gil_scoped_release release;
  return std::make_shared<SharedEngine>(std::move(vector), parts);
}

// A view of the latest theta, and its version.
std::pair<FloatArray, std::uint64_t> read(const Shared& vector) {
  const Viewed viewed = view_of(vector, {.without_gil = true});
  return {viewed.array, viewed.t};
}

// Copies of theta and of the rule's states, and their version.
std::pair<py::array_t<float>, std::uint64_t> shared_state(SharedEngine& vector) {
  py::array_t<float> copies({1 + vector.states(), vector.dimension()});
  float* to = copies.mutable_data();
  const std::uint64_t t = [&] {
    const py::gil_scoped_release release;
    return vector.copy_state(to);
  }();
  return {copies, t};
}

// (published, staleness, failed attempts)
py::tuple push_to_shared(SharedEngine& vector, const FloatArray& gradient, std::uint64_t t_read) {
  require_length(gradient, vector.dimension(), "gradient");
  const float* g = gradient.data();
  const Publication result = [&] {
    const py::gil_scoped_release release;
    return vector.push(g, t_read);
  }();
  return py::make_tuple(result.published, result.staleness_compute + result.staleness_schedule,
                        result.tries);
}

}  // namespace

void bind_shared_vector(py::module_& m) {
  const py::call_guard<py::gil_scoped_release> without_gil;
  py::class_<SharedEngine, Shared>(m, "SharedVector")
      .def_static("create", &create, py::kw_only(), py::arg("name"), py::arg("theta").noconvert(),
                  py::arg("participants"), py::arg("in_place"), py::arg("description"),
                  py::arg("rule"), py::arg("staleness"), py::arg("persistence"))
      .def_static("attach", &attach, py::arg("name"), py::arg("choices"))
      .def_static("path", &SharedMemory::path_of, py::arg("name"),
                  "The file of that name; raises Error where it is no name.")
      .def_static("clean", &SharedMemory::clean, py::arg("name"),
                  "Removes what nobody uses any more; false where there is nothing of the kind.")
      .def("read", &read)
      .def("state", &shared_state)
      .def("push", &push_to_shared, py::arg("gradient").noconvert(), py::arg("t_read"))
      .def("reap", &SharedEngine::reap, without_gil)
      .def("close", &SharedEngine::close, without_gil)
      .def_property_readonly("t", &SharedEngine::t)
      .def_property_readonly("live", &SharedEngine::live)
      .def_property_readonly("participants", &SharedEngine::participants)
      .def_property_readonly("length", &SharedEngine::dimension)
      .def_property_readonly("pids", &SharedEngine::pids)
      .def_property_readonly("closed", &SharedEngine::closed);
}

}  // namespace leashed
