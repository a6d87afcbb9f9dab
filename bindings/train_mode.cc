// Training by a mode on threads.
#include "leashed/cluster/mode_trainer.h"
#include "mode_counts.h"
#include "parts.h"
#include "training.h"

namespace leashed {
namespace {

py::dict train_by_mode(PyTraining& training, const PyWatch& watch,
                       std::vector<std::pair<double, std::uint32_t>> commands,
                       const std::optional<Checkpoint>& resume,
                       const std::optional<std::shared_ptr<ModeTrainer>>& elsewhere) {
  Assembly& parts = training.parts;
  std::optional<ProgressMetrics> metrics;
  keep_metrics(metrics, training.metrics, training.workers, parts);
  ModeTrainOptions options{training.workers, training.batch_size,          training.seed,
                           watch.until,      watch.evaluate_every,         std::move(commands),
                           nullptr,          metrics ? &*metrics : nullptr};
  options.checkpoint_every = watch.checkpoint_every;
  options.pause_every = watch.checkpoint_updates;
  options.judges = watch.judge.has_value();
  options.elsewhere = elsewhere ? elsewhere->get() : nullptr;
  bool interrupted_in_callback = false;
  const TrainCallbacks callbacks = callbacks_of(watch, interrupted_in_callback);
  ModeTrainResult result = without_gil(
      [&] { return train_mode(parts, options, callbacks, resume ? &*resume : nullptr); });
  py::dict all = to_dict(std::move(result.training));
  add_counts(all, std::move(result.counts));
  return all;
}

}  // namespace

void bind_train_mode(py::module_& m) {
  m.def("train_mode", train_by_mode, py::arg("training"), py::arg("watch"), py::arg("commands"),
        py::arg("resume") = py::none(), py::arg("elsewhere") = py::none(),
        "Trains by a mode on threads and returns what train does, and what the mode decided. "
        "elsewhere: whose server is not in this process.");
}

}  // namespace leashed
