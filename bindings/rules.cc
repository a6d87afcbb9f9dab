// Learning-rate schedules, staleness policies and update rules by themselves.
#include "choice.h"
#include "gradient.h"
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
class RuleState : public std::enable_shared_from_this<RuleState> {
 public:
  RuleState(const PyChoice& choice, const FloatArray& theta)
      : rule_(make_rule(to_choice(choice))),
        dimension_(static_cast<std::size_t>(theta.size())),
        buffer_(Updater(dimension_, *rule_).initial({theta.data(), dimension_, 1, 0, *rule_})) {}

  void update(const FloatArray& gradient) {
    require_length(gradient, dimension_, "gradient");
    const GradientPiece whole{gradient.data(), 0, dimension_};
    apply({&whole, 1});
  }
  void update_pieces(const Places& places) { apply(pieces_at(places, dimension_)); }

  // Another learning rate or the like; the state goes on.
  void set_rule(const PyChoice& choice) {
    auto rule = make_rule(to_choice(choice));
    if (rule->states() != rule_->states()) throw Error("the rule keeps other state");
    rule_ = std::move(rule);
  }

  // A copy of theta (0) or of state k; and the memory itself, to be written too.
  py::array_t<float> vector(std::size_t k) const { return py::array_t<float>(length(), at(k)); }
  py::array_t<float> memory(std::size_t k) {
    const py::capsule owner(new std::shared_ptr<RuleState>(shared_from_this()),
                            [](void* p) { delete static_cast<std::shared_ptr<RuleState>*>(p); });
    return py::array_t<float>(length(), at(k), owner);
  }

  std::uint64_t t = 0;

 private:
  void apply(Gradient gradient) {
    const py::gil_scoped_release release;
    const Updater updater(dimension_, *rule_);
    updater.apply(buffer_.data(), buffer_.data(), gradient,
                  {t++, 0, updater.clip_factor(gradient)});
  }
  py::ssize_t length() const { return static_cast<py::ssize_t>(dimension_); }
  const float* at(std::size_t k) const {
    const Layout layout = Updater(dimension_, *rule_).layout();
    if (k > layout.states) throw py::index_error("the rule has no such state");
    return buffer_.data() + k * layout.stride();
  }

  std::unique_ptr<Rule> rule_;
  const std::size_t dimension_;
  AlignedArray<float> buffer_;
};

}  // namespace

void bind_rules(py::module_& m) {
  m.def("schedule_values", schedule_values, py::arg("choice"), py::arg("t").noconvert(),
        py::arg("workers"), "The schedule 'lr' of the choice at each t.");
  m.def("staleness_factors", staleness_factors, py::arg("choice"), py::arg("tau").noconvert(),
        py::arg("last_update"), "The policy's factor at each staleness.");
  py::class_<RuleState, std::shared_ptr<RuleState>>(m, "RuleState",
                                                    "A vector with an update rule's state.")
      .def(py::init<const PyChoice&, const FloatArray&>(), py::arg("rule"),
           py::arg("theta").noconvert())
      .def("update", &RuleState::update, py::arg("gradient").noconvert())
      .def("update_pieces", &RuleState::update_pieces, py::arg("places"))
      .def("set_rule", &RuleState::set_rule, py::arg("rule"))
      .def("vector", &RuleState::vector, py::arg("k"), "A copy of theta (0) or of state k.")
      .def("memory", &RuleState::memory, py::arg("k"), "The same, where it lies.")
      .def_readwrite("t", &RuleState::t, "Updates applied.");
}

}  // namespace leashed
