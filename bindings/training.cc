#include "training.h"

#include <limits>
#include <memory>
#include <utility>

#include "data.h"
#include "leashed/base/error.h"
#include "leashed/engine/observers/registry.h"
#include "parts.h"

namespace leashed {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

std::unique_ptr<PyTraining> made(
    const py::object& source, const FloatArray& theta, const py::object& x, const py::array& y,
    const std::optional<FloatArray>& weights, const std::optional<py::object>& validation_x,
    const std::optional<py::array>& validation_y, const PyChoice& discipline, const PyChoice& rule,
    const PyChoice& staleness, std::size_t workers, std::size_t batch_size, std::uint64_t seed,
    std::vector<std::shared_ptr<Table>> tables, const std::optional<PyRecording>& record,
    const std::optional<PyMetrics>& metrics, const std::vector<PyChoice>& observers) {
  require_some(workers, "workers");
  require_some(batch_size, "batch_size");
  const auto& model = py::cast<const GradientSource&>(source);
  auto training = std::make_unique<PyTraining>(
      PyTraining{assembly_of(model, theta, x, y, weights, {discipline, rule, staleness}, seed),
                 workers,
                 batch_size,
                 seed,
                 metrics,
                 {source, theta, x, y}});
  if (weights) training->kept.push_back(*weights);
  Assembly& parts = training->parts;
  parts.tables = std::move(tables);
  parts.recording = to_recording(record);
  for (const PyChoice& observer : observers) parts.observers.push_back(to_choice(observer));
  if (validation_x && validation_y) {
    parts.validation = view_of(model, *validation_x, *validation_y);
    training->kept.insert(training->kept.end(), {*validation_x, *validation_y});
  }
  return training;
}

}  // namespace

void bind_training(py::module_& m) {
  py::class_<PyTraining>(
      m, "Training",
      "What is trained on what: `discipline` is one, or a mode, and with the rule "
      "and the staleness policy a name and its settings.")
      .def(py::init(&made), py::kw_only(), py::arg("source"), py::arg("theta").noconvert(),
           py::arg("x"), py::arg("y").noconvert(), py::arg("weights").noconvert() = py::none(),
           py::arg("validation_x").noconvert() = py::none(),
           py::arg("validation_y").noconvert() = py::none(), py::arg("discipline"), py::arg("rule"),
           py::arg("staleness"), py::arg("workers"), py::arg("batch_size"), py::arg("seed"),
           py::arg("tables") = std::vector<std::shared_ptr<Table>>(),
           py::arg("record") = py::none(), py::arg("metrics") = py::none(),
           py::arg("observers") = std::vector<PyChoice>());
  m.def("observers", observer_settings, "The observers there are, and the settings of each.");
  py::class_<PyWatch>(m, "Watch", "When a run ends, and who is told of it meanwhile.")
      .def(py::init([](const Settings& until, std::vector<double> milestones, double evaluate_every,
                       std::optional<py::function> progress, std::optional<py::function> checkpoint,
                       double checkpoint_every, std::uint64_t checkpoint_updates,
                       std::optional<py::function> saving, std::optional<py::function> judge,
                       std::optional<py::function> keep, std::optional<py::function> wanted) {
             return PyWatch{to_rules(until, std::move(milestones)),
                            evaluate_every,
                            std::move(progress),
                            std::move(checkpoint),
                            checkpoint_every,
                            checkpoint_updates,
                            std::move(saving),
                            std::move(judge),
                            std::move(keep),
                            std::move(wanted)};
           }),
           py::kw_only(), py::arg("until"), py::arg("milestones") = std::vector<double>(),
           py::arg("evaluate_every") = kNever, py::arg("progress") = py::none(),
           py::arg("checkpoint") = py::none(), py::arg("checkpoint_every") = kNever,
           py::arg("checkpoint_updates") = 0, py::arg("saving") = py::none(),
           py::arg("judge") = py::none(), py::arg("keep") = py::none(),
           py::arg("wanted") = py::none());
}

}  // namespace leashed
