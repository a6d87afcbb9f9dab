// Training by a mode on threads.
#include "choice.h"
#include "data.h"
#include "leashed/engine/policy_threads.h"
#include "leashed/staleness/registry.h"
#include "leashed/update/registry.h"
#include "mode_counts.h"
#include "parts.h"
#include "read.h"
#include "train.h"

namespace leashed {
namespace {

py::dict train_by_mode(const GradientSource& source, const FloatArray& theta, const py::object& x,
                       const py::array& y, const std::optional<py::object>& validation_x,
                       const std::optional<py::array>& validation_y, const PyChoice& mode,
                       const PyChoice& rule, const PyChoice& staleness, std::size_t threads,
                       std::size_t batch_size, std::uint64_t seed, const Settings& until,
                       std::vector<double> milestones, double evaluate_every,
                       const std::optional<py::function>& progress,
                       const std::optional<FloatArray>& weights,
                       std::vector<std::pair<double, std::uint32_t>> commands) {
  require_some(threads, "threads");
  require_some(batch_size, "batch_size");
  require_length(theta, source.dimension(), "theta");
  const DatasetView data = view_of(source, x, y, weights);
  std::optional<DatasetView> validation;
  if (validation_x && validation_y) validation = view_of(source, *validation_x, *validation_y);
  const auto made_rule = make_rule(to_choice(rule), threads);
  const auto policy = make_staleness(to_choice(staleness));
  const DisciplineContext context{theta.data(), source.dimension(), threads, 1, *made_rule,
                                  *policy,      source.block_ends()};
  const ModeTrainOptions options{threads,        batch_size,
                                 seed,           to_rules(until, std::move(milestones)),
                                 evaluate_every, std::move(commands)};
  const modes::ServerPolicy machine = modes::make_server_policy(to_choice(mode));
  bool interrupted_in_callback = false;
  const std::optional<py::function> none;
  const TrainCallbacks callbacks = callbacks_of(progress, none, interrupted_in_callback);
  ModeTrainResult result;
  {
    const py::gil_scoped_release release;
    result = train_mode(source, data, validation ? &*validation : nullptr, machine, context,
                        options, callbacks);
  }
  py::dict all = to_dict(std::move(result.training));
  add_counts(all, std::move(result.counts));
  return all;
}

}  // namespace

void bind_train_mode(py::module_& m) {
  m.def("train_mode", train_by_mode, py::arg("source"), py::arg("theta").noconvert(), py::arg("x"),
        py::arg("y").noconvert(), py::arg("validation_x").noconvert(),
        py::arg("validation_y").noconvert(), py::arg("mode"), py::arg("rule"), py::arg("staleness"),
        py::arg("threads"), py::arg("batch_size"), py::arg("seed"), py::arg("until"),
        py::arg("milestones"), py::arg("evaluate_every"), py::arg("progress"),
        py::arg("weights").noconvert() = py::none(),
        py::arg("commands") = std::vector<std::pair<double, std::uint32_t>>(),
        "Trains by a mode on threads and returns what train does, and what the mode decided.");
}

}  // namespace leashed
