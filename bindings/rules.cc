// Learning-rate schedules, staleness policies and update rules by themselves.
#include "choice.h"
#include "leashed/discipline/updater.h"
#include "leashed/staleness/registry.h"
#include "leashed/update/registry.h"
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
    factors.push_back(policy->factor(tau.at(i) * policy->stage(last_update)));
  }
  return to_array(std::move(factors));
}

// A vector with a rule's state, changed in place by one thread.
class RuleState {
 public:
  RuleState(const PyChoice& choice, const FloatArray& theta)
      : rule_(make_rule(to_choice(choice))),
        updater_(static_cast<std::size_t>(theta.size()), *rule_),
        buffer_(updater_.initial(
            {theta.data(), static_cast<std::size_t>(theta.size()), 1, 0, *rule_})) {}

  void update(const FloatArray& gradient) {
    require_length(gradient, updater_.layout().dimension, "gradient");
    const float* g = gradient.data();
    const py::gil_scoped_release release;
    updater_.apply(buffer_.data(), buffer_.data(), g, {t_++, 0, updater_.clip_factor(g)});
  }
  // Theta, then the states.
  py::array_t<float> vector(std::size_t k) const {
    const Layout& layout = updater_.layout();
    if (k > layout.states) throw py::index_error("the rule has no such state");
    return py::array_t<float>(static_cast<py::ssize_t>(layout.dimension),
                              buffer_.data() + k * layout.stride());
  }

 private:
  const std::unique_ptr<Rule> rule_;
  const Updater updater_;
  AlignedArray<float> buffer_;
  std::uint64_t t_ = 0;
};

}  // namespace

void bind_rules(py::module_& m) {
  m.def("schedule_values", schedule_values, py::arg("choice"), py::arg("t").noconvert(),
        py::arg("workers"), "The schedule 'lr' of the choice at each t.");
  m.def("staleness_factors", staleness_factors, py::arg("choice"), py::arg("tau").noconvert(),
        py::arg("last_update"), "The policy's factor at each staleness.");
  py::class_<RuleState>(m, "RuleState", "A vector with an update rule's state.")
      .def(py::init<const PyChoice&, const FloatArray&>(), py::arg("rule"),
           py::arg("theta").noconvert())
      .def("update", &RuleState::update, py::arg("gradient").noconvert())
      .def("vector", &RuleState::vector, py::arg("k"), "A copy of theta (0) or of state k.");
}

}  // namespace leashed
