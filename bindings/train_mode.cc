// Training by a mode on threads.
#include "assembly.h"
#include "data.h"
#include "mode_counts.h"
#include "parts.h"
#include "read.h"
#include "train.h"

namespace leashed {
namespace {

py::dict train_by_mode(
    const GradientSource& source, const FloatArray& theta, const py::object& x, const py::array& y,
    const std::optional<py::object>& validation_x, const std::optional<py::array>& validation_y,
    const PyChoice& mode, const PyChoice& rule, const PyChoice& staleness, std::size_t threads,
    std::size_t batch_size, std::uint64_t seed, const Settings& until,
    std::vector<double> milestones, double evaluate_every,
    const std::optional<py::function>& progress, const std::optional<py::function>& checkpoint,
    double checkpoint_every, const std::optional<Checkpoint>& resume,
    const std::optional<FloatArray>& weights,
    std::vector<std::pair<double, std::uint32_t>> commands,
    const std::optional<PyRecording>& record, const std::optional<PyMetrics>& scored,
    const std::vector<std::shared_ptr<Table>>& tables, std::uint64_t pause_every) {
  require_some(threads, "threads");
  require_some(batch_size, "batch_size");
  Assembly parts = assembly_of(source, theta, x, y, weights, {mode, rule, staleness}, seed);
  parts.recording = to_recording(record);
  parts.tables = tables;
  if (validation_x && validation_y) {
    parts.validation = view_of(source, *validation_x, *validation_y);
  }
  std::optional<ProgressMetrics> metrics;
  keep_metrics(metrics, scored, threads, parts);
  ModeTrainOptions options{
      threads,        batch_size,          seed,    to_rules(until, std::move(milestones)),
      evaluate_every, std::move(commands), nullptr, metrics ? &*metrics : nullptr};
  options.checkpoint_every = checkpoint_every;
  options.pause_every = pause_every;
  bool interrupted_in_callback = false;
  const std::optional<py::function> none;
  const TrainCallbacks callbacks =
      callbacks_of(progress, checkpoint, none, interrupted_in_callback);
  ModeTrainResult result = without_gil(
      [&] { return train_mode(parts, options, callbacks, resume ? &*resume : nullptr); });
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
        py::arg("checkpoint"), py::arg("checkpoint_every"), py::arg("resume"),
        py::arg("weights").noconvert() = py::none(),
        py::arg("commands") = std::vector<std::pair<double, std::uint32_t>>(),
        py::arg("record") = py::none(), py::arg("metrics") = py::none(),
        py::arg("tables") = std::vector<std::shared_ptr<Table>>(), py::arg("pause_every") = 0,
        "Trains by a mode on threads and returns what train does, and what the mode decided.");
}

}  // namespace leashed
