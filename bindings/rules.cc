// Learning-rate schedules, staleness policies and update rules by themselves.
#include <tuple>

#include "arrays.h"
#include "choice.h"
#include "leashed/staleness/registry.h"
#include "leashed/update/registry.h"
#include "leashed/update/rule_state.h"
#include "leashed/update/schedule.h"
#include "parts.h"

namespace leashed {
namespace {

using DoubleArray = py::array_t<double, py::array::c_style>;
using CountArray = py::array_t<std::uint64_t, py::array::c_style>;

py::array_t<double> schedule_values(const PyChoice& choice, const CountArray& t,
                                    std::size_t workers) {
  const auto schedule = make_schedule(to_choice(choice), "lr", workers);
  std::vector<double> values;
  for (py::ssize_t i = 0; i < t.size(); ++i) values.push_back(schedule->at(t.at(i)));
  return to_array(std::move(values));
}

py::array_t<double> staleness_factors(const PyChoice& choice, const DoubleArray& tau,
                                      double last_update) {
  const auto policy = make_staleness(to_choice(choice));
  std::vector<double> factors;
  for (py::ssize_t i = 0; i < tau.size(); ++i) {
    factors.push_back(policy->factor(policy->staged(tau.at(i), last_update)));
  }
  return to_array(std::move(factors));
}

void update_state(RuleState& state, const FloatArray& gradient) {
  require_length(gradient, state.dimension(), "gradient");
  const py::gil_scoped_release release;
  state.update(gradient.data());
}

// (address, begin, end, updates) each. For leashed.torch, which has checked what lies there.
using Pieces = std::vector<std::tuple<std::uintptr_t, std::size_t, std::size_t, std::uint64_t>>;

void update_pieces(RuleState& state, const Pieces& places) {
  std::vector<RuleState::Piece> pieces;
  pieces.reserve(places.size());
  for (const auto& [address, begin, end, updates] : places) {
    pieces.push_back({reinterpret_cast<const float*>(address), begin, end, updates});
  }
  const py::gil_scoped_release release;
  state.update(pieces);
}

void set_rule(RuleState& state, const PyChoice& choice) {
  auto rule = make_rule(to_choice(choice));
  const py::gil_scoped_release release;  // an update may have the state
  state.set_rule(std::move(rule));
}

py::ssize_t length(const RuleState& state, std::size_t k) {
  if (k > state.states()) throw py::index_error("the rule has no such state");
  return static_cast<py::ssize_t>(state.dimension());
}

py::array_t<float> vector(const RuleState& state, std::size_t k) {
  py::array_t<float> copy(length(state, k));
  float* to = copy.mutable_data();
  const py::gil_scoped_release release;
  state.copy(k, to);
  return copy;
}

py::array_t<float> state_memory(const py::object& self, std::size_t k) {
  auto& state = py::cast<RuleState&>(self);
  return py::array_t<float>(length(state, k), state.memory(k), self);  // which keeps it alive
}

}  // namespace

void bind_rules(py::module_& m) {
  m.def("schedule_values", schedule_values, py::arg("choice"), py::arg("t").noconvert(),
        py::arg("workers"), "The schedule 'lr' of the choice at each t.");
  m.def("staleness_factors", staleness_factors, py::arg("choice"), py::arg("tau").noconvert(),
        py::arg("last_update"), "The policy's factor at each staleness.");
  const py::call_guard<py::gil_scoped_release> waits;  // for an update to end
  py::class_<RuleState>(m, "RuleState", "A vector with an update rule's state.")
      .def(py::init([](const PyChoice& choice, const FloatArray& theta) {
             return std::make_unique<RuleState>(make_rule(to_choice(choice)), theta.data(),
                                                static_cast<std::size_t>(theta.size()));
           }),
           py::arg("rule"), py::arg("theta").noconvert())
      .def("update", update_state, py::arg("gradient").noconvert())
      .def("update_pieces", update_pieces, py::arg("places"),
           "A gradient of some parameters: (address, begin, end, updates) of each piece.")
      .def("set_rule", set_rule, py::arg("rule"))
      .def("vector", vector, py::arg("k"), "A copy of theta (0) or of state k.")
      .def("memory", state_memory, py::arg("k"), "The same, where it lies.")
      .def_property("t", py::cpp_function(&RuleState::t, waits),
                    py::cpp_function(&RuleState::set_t, waits), "Updates applied.");
}

}  // namespace leashed
