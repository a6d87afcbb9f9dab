// A mode of training as a value, for whoever wants to see what it answers.
#include <pybind11/stl.h>

#include <map>

#include "leashed/policy/server_policy.h"
#include "parts.h"

namespace leashed {

namespace py = pybind11;

namespace modes {
namespace {

constexpr const char* kEvents[] = {"push", "leave", "join", "command", "data_end", "pull", "wake"};
constexpr const char* kActions[] = {"grant",    "hold", "apply", "drop",
                                    "exchange", "meet", "wake",  "end"};
constexpr const char* kWhy[] = {"late", "stale", "straggler"};

Event::Kind kind_of(const std::string& name) {
  for (std::size_t i = 0; i < std::size(kEvents); ++i) {
    if (name == kEvents[i]) return static_cast<Event::Kind>(i);
  }
  throw Error("kind: there is no event '" + name +
              "'; give push, leave, join, command, data_end, pull or wake");
}

py::dict to_dict(const Action& a, const Out& out) {
  py::dict d;
  d["kind"] = kActions[static_cast<std::size_t>(a.kind)];
  switch (a.kind) {
    case Action::Kind::grant:
      d["node"] = a.node;
      d["lease"] = py::make_tuple(a.lease.ticket, a.lease.number, a.lease.first, a.lease.count,
                                  a.lease.token);
      d["version"] = a.version;
      d["n"] = a.n;
      d["c"] = a.c;
      break;
    case Action::Kind::hold:
      d["slot"] = a.slot;
      break;
    case Action::Kind::apply: {
      py::list slots;
      for (const Slot& slot : out.slots(a)) slots.append(py::make_tuple(slot.index, slot.weight));
      d["slots"] = slots;
      d["divisor"] = a.divisor;
      d["version"] = a.version;
      break;
    }
    case Action::Kind::drop:
      d["ticket"] = a.ticket;
      d["why"] = kWhy[static_cast<std::size_t>(a.why)];
      break;
    case Action::Kind::exchange:
      d["node"] = a.node;
      d["ticket"] = a.ticket;
      d["alpha"] = a.alpha;
      d["version"] = a.version;
      break;
    case Action::Kind::meet: {
      py::list nodes;
      for (const Node node : out.nodes(a)) nodes.append(node);
      d["nodes"] = nodes;
      break;
    }
    case Action::Kind::wake:
      d["at"] = a.at.ns;
      break;
    case Action::Kind::end:
      d["node"] = a.node;
      break;
  }
  return d;
}

class PolicyMachine {
 public:
  PolicyMachine(const std::string& name, const std::map<std::string, double>& arguments)
      : machine_(make_server_policy({name, arguments})) {}

  py::list on(const std::string& kind, std::int64_t now_ns, Node node, std::uint64_t ticket,
              std::uint64_t version, std::uint32_t argument) {
    const Event::Kind event = kind_of(kind);
    out_.clear();
    machine_.on({event, node, ticket, version, argument}, {now_ns}, out_);
    py::list actions;
    for (const Action& action : out_.actions()) actions.append(to_dict(action, out_));
    return actions;
  }

  py::dict rule() const {
    constexpr const char* kMixings[] = {"fixed", "logarithm", "root"};
    const WorkerRule& r = machine_.rule();
    py::dict mixing;
    mixing["kind"] = kMixings[static_cast<std::size_t>(r.mixing.kind)];
    mixing["alpha"] = r.mixing.alpha;
    mixing["base"] = r.mixing.base;
    py::dict d;
    d["model"] = r.model == WorkerRule::Model::own ? "own" : "pulled";
    d["local_steps"] = r.local_steps;
    d["sends"] = r.sends == WorkerRule::Sends::model ? "model" : "gradient";
    d["steps_own"] = r.steps_own;
    d["takes"] = r.takes == WorkerRule::Takes::mix ? "mix" : "replace";
    d["mixing"] = mixing;
    return d;
  }

  double weight(std::uint32_t n, std::uint32_t c) const {
    return machine_.rule().mixing.weight(n, c);
  }

 private:
  ServerPolicy machine_;
  Out out_;
};

}  // namespace
}  // namespace modes

void bind_modes(py::module_& m) {
  py::class_<modes::PolicyMachine>(
      m, "PolicyMachine",
      "A mode of training as a state machine: events in, actions out, and "
      "time only as an argument.")
      .def(py::init<const std::string&, const std::map<std::string, double>&>(), py::arg("name"),
           py::arg("arguments"))
      .def("on", &modes::PolicyMachine::on, py::arg("kind"), py::arg("now_ns"), py::arg("node"),
           py::arg("ticket") = 0, py::arg("version") = 0, py::arg("argument") = 0,
           "What an event is answered with, in order.")
      .def("copy",
           [](const modes::PolicyMachine& machine) { return modes::PolicyMachine(machine); })
      .def("rule", &modes::PolicyMachine::rule, "What its workers do, as data.")
      .def("weight", &modes::PolicyMachine::weight, py::arg("n"), py::arg("c"),
           "The weight of what is granted: of n nodes, after c updates by others.");
}

}  // namespace leashed
