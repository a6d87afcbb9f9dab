#include <limits>
#include <tuple>

#include "choice.h"
#include "data.h"
#include "leashed/discipline/registry.h"
#include "leashed/simulation/play_mode.h"
#include "leashed/staleness/registry.h"
#include "leashed/update/registry.h"
#include "mode_counts.h"
#include "parts.h"
#include "read.h"
#include "train.h"

namespace leashed {
namespace {

py::dict to_dict(SimulationResult result) {
  std::vector<double> moments, counts;
  for (const auto& [seconds, count] : result.updating) {
    moments.push_back(seconds);
    counts.push_back(count);
  }
  py::dict all = to_dict(std::move(result.training));
  all["updating_seconds"] = to_array(std::move(result.updating_seconds));
  all["updating_moments"] = to_array(std::move(moments));
  all["updating"] = to_array(std::move(counts));
  all["events"] = result.events;
  return all;
}

using PyMemberChange = std::tuple<std::uint32_t, std::uint32_t, double>;  // kind, worker, seconds

MemberOptions to_members(const std::vector<PyMemberChange>& changes,
                         const std::pair<double, double>& failing, double detection,
                         std::size_t workers) {
  MemberOptions options{{}, failing.first, failing.second, detection};
  for (const auto& [kind, worker, seconds] : changes) {
    if (kind > static_cast<std::uint32_t>(MemberChange::Kind::join) || worker >= workers) {
      throw py::value_error("changes must be of a kind from 0 to 2 and of one of the workers");
    }
    options.changes.push_back({static_cast<MemberChange::Kind>(kind), worker, seconds});
  }
  return options;
}

py::dict simulate_model(
    const GradientSource& source, const FloatArray& theta, const py::object& x, const py::array& y,
    const std::optional<py::object>& validation_x, const std::optional<py::array>& validation_y,
    const std::optional<PyChoice>& discipline, const std::optional<PyChoice>& mode,
    const PyChoice& rule, const PyChoice& staleness, std::size_t workers, std::size_t batch_size,
    std::uint64_t seed, const Settings& until, double evaluate_every, const PyChoice& compute,
    const PyChoice& update, const PyChoice& copy, const std::optional<py::function>& progress,
    const std::optional<FloatArray>& weights,
    std::vector<std::pair<double, std::uint32_t>> commands, const std::optional<PyChoice>& network,
    const std::vector<PyMemberChange>& changes, const std::pair<double, double>& failing,
    double detection) {
  require_some(workers, "workers");
  require_some(batch_size, "batch_size");
  require_length(theta, source.dimension(), "theta");
  if (discipline.has_value() == mode.has_value()) {
    throw py::value_error("give a discipline or a mode");
  }
  const DatasetView data = view_of(source, x, y, weights);
  std::optional<DatasetView> validation;
  if (validation_x && validation_y) validation = view_of(source, *validation_x, *validation_y);
  const DatasetView* const validating = validation ? &*validation : nullptr;
  const auto made_rule = make_rule(to_choice(rule), workers);
  const auto policy = make_staleness(to_choice(staleness));
  const DisciplineContext context{theta.data(), source.dimension(), workers, 1, *made_rule,
                                  *policy,      source.block_ends()};
  const SimulationOptions options{workers,
                                  batch_size,
                                  seed,
                                  to_rules(until, {}),
                                  evaluate_every,
                                  to_choice(compute),
                                  to_choice(update),
                                  to_choice(copy),
                                  std::move(commands),
                                  network ? std::optional(to_choice(*network)) : std::nullopt,
                                  to_members(changes, failing, detection, workers)};
  bool interrupted_in_callback = false;
  const std::optional<py::function> none;
  const TrainCallbacks callbacks = callbacks_of(progress, none, interrupted_in_callback);
  if (discipline) {
    const Choice choice = to_choice(*discipline);
    SimulationResult result;
    {
      const py::gil_scoped_release release;
      const auto played = make_discipline(choice, context);
      result = simulate(source, data, validating, choice, *played, context, options, callbacks);
    }
    return to_dict(std::move(result));
  }
  const modes::ServerPolicy machine = modes::make_server_policy(to_choice(*mode));
  ModeResult result;
  {
    const py::gil_scoped_release release;
    result = simulate_mode(source, data, validating, machine, context, options, callbacks);
  }
  py::dict all = to_dict(std::move(result.simulation));
  add_counts(all, std::move(result.counts));
  return all;
}

}  // namespace

void bind_simulation(py::module_& m) {
  m.def("simulate", simulate_model, py::arg("source"), py::arg("theta").noconvert(), py::arg("x"),
        py::arg("y").noconvert(), py::arg("validation_x").noconvert(),
        py::arg("validation_y").noconvert(), py::arg("discipline"), py::arg("mode"),
        py::arg("rule"), py::arg("staleness"), py::arg("workers"), py::arg("batch_size"),
        py::arg("seed"), py::arg("until"), py::arg("evaluate_every"), py::arg("compute"),
        py::arg("update"), py::arg("copy"), py::arg("progress"),
        py::arg("weights").noconvert() = py::none(),
        py::arg("commands") = std::vector<std::pair<double, std::uint32_t>>(),
        py::arg("network") = py::none(), py::arg("changes") = std::vector<PyMemberChange>(),
        py::arg("failing") = std::pair<double, double>(),
        py::arg("detection") = std::numeric_limits<double>::infinity(),
        "Trains in virtual time and returns what train does, and how many workers were in their "
        "updates: for how many seconds each number, and when it changed.");
}

}  // namespace leashed
