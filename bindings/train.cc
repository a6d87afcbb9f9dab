#include "train.h"

#include <tuple>
#include <utility>

#include "assembly.h"
#include "clicks.h"
#include "data.h"
#include "heads.h"
#include "interrupted.h"
#include "leashed/cluster/remote_rows.h"
#include "leashed/cluster/trainer_sync.h"
#include "parts.h"
#include "read.h"
#include "rows.h"
#include "running.h"
#include "training.h"

namespace leashed {

namespace {

// Of several labels what is told of each.
py::dict to_dict(const std::vector<Scores>& heads) {
  using namespace pybind11::literals;
  if (heads.size() == 1) return to_dict(heads.front());
  py::list each;
  for (const Scores& head : heads) each.append(to_dict(head));
  return py::dict("heads"_a = each);
}

py::object to_dict(const std::shared_ptr<const ScoredWindow>& scored) {
  using namespace pybind11::literals;
  if (!scored) return py::none();
  return py::dict("seconds"_a = scored->seconds, "updates"_a = scored->updates,
                  "window"_a = to_dict(scored->window), "total"_a = to_dict(scored->total));
}

py::dict to_dict(const Evaluated& e) {
  using namespace pybind11::literals;
  return py::dict(
      "seconds"_a = e.seconds, "updates"_a = e.updates, "loss"_a = e.loss, "rows"_a = e.rows,
      "accuracy"_a = e.accuracy, "validation_accuracy"_a = e.validation_accuracy,
      "auc"_a = mean_of_known(each(e.heads, &HeadScore::auc)),
      "normalised_entropy"_a = mean_of_known(each(e.heads, &HeadScore::normalised_entropy)),
      "validation_auc"_a = mean_of_known(each(e.validation_heads, &HeadScore::auc)),
      "validation_normalised_entropy"_a =
          mean_of_known(each(e.validation_heads, &HeadScore::normalised_entropy)),
      "heads"_a = py::dict("auc"_a = each(e.heads, &HeadScore::auc),
                           "normalised_entropy"_a = each(e.heads, &HeadScore::normalised_entropy),
                           "validation_auc"_a = each(e.validation_heads, &HeadScore::auc),
                           "validation_normalised_entropy"_a =
                               each(e.validation_heads, &HeadScore::normalised_entropy)),
      "gradients"_a = e.gradients, "memory_bytes"_a = e.memory_bytes,
      "live_vectors"_a = e.live_vectors, "staleness"_a = to_array(e.staleness),
      "observed"_a = e.observed, "scored"_a = to_dict(e.scored),
      "validation_loss"_a = e.validation_loss);
}

// Mean losses; NaN where a pass had no gradient.
std::vector<double> means_of(const std::vector<PassLoss>& passes) {
  std::vector<double> means;
  for (const PassLoss& pass : passes) means.push_back(pass.mean());
  return means;
}

}  // namespace

py::dict to_dict(TrainResult result) {
  using namespace pybind11::literals;
  py::list evaluations;
  for (const Evaluated& e : result.evaluations) evaluations.append(to_dict(e));
  py::list scored;
  for (const auto& window : result.scored) scored.append(to_dict(window));
  return py::dict(
      "outcome"_a = result.outcome, "reason"_a = std::string(stop_reason_name(result.reason)),
      "parameters"_a = to_array(std::move(result.parameters)), "evaluations"_a = evaluations,
      "scored"_a = scored, "pass_losses"_a = to_array(means_of(result.passes)),
      "elapsed"_a = result.elapsed, "updates"_a = result.updates, "gradients"_a = result.gradients,
      "dropped"_a = result.dropped, "excluded"_a = result.excluded,
      "lost_to_synchronisation"_a = result.lost_to_synchronisation,
      "staleness"_a = to_array(std::move(result.staleness)),
      "staleness_compute"_a = to_array(std::move(result.staleness_compute)),
      "staleness_schedule"_a = to_array(std::move(result.staleness_schedule)),
      "tries"_a = to_array(std::move(result.tries)),
      "gradient_seconds"_a = to_array(std::move(result.gradient_seconds.counts)),
      "gradient_seconds_total"_a = result.gradient_seconds.total,
      "update_seconds"_a = to_array(std::move(result.update_seconds.counts)),
      "update_seconds_total"_a = result.update_seconds.total,
      "attempt_seconds"_a = to_array(std::move(result.attempt_seconds.counts)),
      "attempt_seconds_total"_a = result.attempt_seconds.total,
      "worker_updates"_a = to_array(std::move(result.worker_updates)),
      "data_seconds"_a = result.data_seconds, "read_seconds"_a = result.read_seconds,
      "sampling_seconds"_a = result.sampling_seconds, "waiting_seconds"_a = result.waiting_seconds,
      "running_seconds"_a = result.running_seconds, "row_seconds"_a = result.row_seconds,
      "rows"_a = to_dict(result.rows), "in_place"_a = result.sparse_runs,
      "observed"_a = result.observed, "recording_failure"_a = result.recording_failure,
      "peak_vectors"_a = result.peak_vectors, "peak_memory_bytes"_a = result.peak_memory_bytes);
}

void keep_metrics(std::optional<ProgressMetrics>& metrics, const std::optional<PyMetrics>& asked,
                  std::size_t workers, Assembly& parts) {
  if (!asked) return;
  if (!parts.source.gives_logits()) {
    throw py::value_error(
        "metrics are of models whose outputs are logits of labels; leave them out");
  }
  const auto& [users, kept] = *asked;
  const bool known = users || (parts.stream && parts.stream->users);
  if (known) require_some(kept, "kept");
  if (users) {
    require_length(*users, parts.data.rows, "users");
    parts.data.targets.users = users->data();
  }
  metrics.emplace(workers, known ? kept : 0, parts.source.values());
}

StopRules to_rules(const Settings& until, std::vector<double> milestones) {
  StopRules rules;
  rules.milestones = std::move(milestones);
  const auto set = [&until](const char* name, auto& value) {
    if (const auto found = until.find(name); found != until.end()) {
      value = static_cast<std::remove_reference_t<decltype(value)>>(found->second);
    }
  };
  set("loss_fraction", rules.loss_fraction);
  set("loss", rules.loss);
  set("updates", rules.updates);
  set("batches", rules.batches);
  set("seconds", rules.seconds);
  set("divergence", rules.divergence);
  set("rows", rules.rows);
  return rules;
}

TrainCallbacks callbacks_of(const PyWatch& watch, bool& interrupted_in_callback) {
  // False where Ctrl-C ended it.
  const auto call = [&interrupted_in_callback](const auto& callback, auto&&... arguments) {
    try {
      callback(std::forward<decltype(arguments)>(arguments)...);
      return true;
    } catch (py::error_already_set& error) {
      if (!error.matches(PyExc_KeyboardInterrupt)) throw;
      interrupted_in_callback = true;
      return false;
    }
  };
  TrainCallbacks callbacks{[&interrupted_in_callback] {
                             return std::exchange(interrupted_in_callback, false) || interrupted();
                           },
                           {},
                           {}};
  if (watch.progress) {
    callbacks.progress = [call, &watch](const Evaluated& now, double initial_loss) {
      const py::gil_scoped_acquire acquire;
      call(*watch.progress, to_dict(now), initial_loss);
    };
  }
  const auto taking = [call](const py::function& checkpoint) {
    return [call, &checkpoint](Checkpoint taken) {
      const py::gil_scoped_acquire acquire;
      const py::object reached = py::cast(std::move(taken));
      // The very same once more, so that it can go on where it was; the next Ctrl-C is passed on.
      if (!call(checkpoint, reached)) checkpoint(reached);
    };
  };
  if (watch.checkpoint) callbacks.checkpoint = taking(*watch.checkpoint);
  if (watch.keep) callbacks.keep = taking(*watch.keep);
  if (watch.judge) {
    callbacks.judge = [call, &judge = *watch.judge](const Evaluated& now, bool passed) {
      const py::gil_scoped_acquire acquire;
      std::pair<bool, bool> told;
      const auto ask = [&](const py::dict& of) {
        told = judge(of, passed).cast<std::pair<bool, bool>>();
      };
      if (!call(ask, to_dict(now))) return Verdict{};
      return Verdict{told.first, told.second};
    };
  }
  if (watch.wanted) {
    callbacks.wanted = [call, &wanted = *watch.wanted] {
      const py::gil_scoped_acquire acquire;
      bool found = false;
      return call([&] { found = wanted().cast<bool>(); }) && found;
    };
  }
  if (watch.saving) {
    callbacks.saving = [call, &saving = *watch.saving] {
      const py::gil_scoped_acquire acquire;
      if (!call(saving)) saving();
    };
  }
  return callbacks;
}

namespace {

using Shrink = std::tuple<double, std::vector<double>, std::size_t>;  // ShrinkProgress
using PyArchived = std::pair<UserArray, FloatArray>;                  // Archived

Checkpoint to_checkpoint(const FloatArray& vectors, const FloatArray& last_updates,
                         std::uint64_t updates, std::uint64_t batches, double initial_loss,
                         std::vector<std::uint64_t> staleness, const FloatArray& behind,
                         Shrink shrink, const std::optional<PyArchived>& mode) {
  if (vectors.ndim() != 2 || vectors.size() == 0) {
    throw py::value_error("vectors must be two-dimensional");
  }
  const auto copy = [](const auto& a) { return std::vector(a.data(), a.data() + a.size()); };
  auto& [total, done, next] = shrink;
  return {{updates, batches},
          initial_loss,
          static_cast<std::size_t>(vectors.shape(1)),
          copy(vectors),
          copy(last_updates),
          std::move(staleness),
          copy(behind),
          {total, std::move(done), next},
          {},
          mode ? Archived{copy(mode->first), copy(mode->second)} : Archived{}};
}

// A read-only array of a checkpoint's memory.
FloatArray array_of(const py::object& owner, const std::vector<float>& values,
                    const std::vector<py::ssize_t>& shape) {
  FloatArray array(shape, values.data(), owner);
  make_read_only(array);
  return array;
}
FloatArray array_of(const py::object& owner, std::vector<float> Checkpoint::*values) {
  const auto& all = py::cast<const Checkpoint&>(owner).*values;
  return array_of(owner, all, {static_cast<py::ssize_t>(all.size())});
}

py::dict train_model(PyTraining& training, const PyWatch& watch,
                     const std::optional<Checkpoint>& resume, std::size_t recorded_passes,
                     const std::optional<std::shared_ptr<Leases>>& leases,
                     const std::optional<std::shared_ptr<TrainerSync>>& synchronisation,
                     const std::optional<std::shared_ptr<RemoteRows>>& rows) {
  Assembly& parts = training.parts;
  if (rows) {
    const RemoteRows& remote = **rows;
    if (remote.tables() != parts.source.tables().size() || remote.workers() < training.workers) {
      throw py::value_error("rows must be of the " + std::to_string(parts.source.tables().size()) +
                            " tables that the source reads, and of " +
                            std::to_string(training.workers) + " workers");
    }
  }
  parts.rows = rows ? rows->get() : nullptr;
  std::optional<ProgressMetrics> metrics;
  keep_metrics(metrics, training.metrics, training.workers, parts);
  const TrainOptions options{training.workers,
                             training.batch_size,
                             training.seed,
                             watch.until,
                             watch.evaluate_every,
                             recorded_passes,
                             watch.checkpoint_every,
                             watch.checkpoint_updates,
                             {},
                             std::numeric_limits<double>::quiet_NaN(),
                             nullptr,
                             leases ? leases->get() : nullptr,
                             synchronisation ? synchronisation->get() : nullptr,
                             metrics ? &*metrics : nullptr,
                             {},
                             nullptr,
                             watch.judge.has_value()};
  bool interrupted_in_callback = false;
  const TrainCallbacks callbacks = callbacks_of(watch, interrupted_in_callback);
  return to_dict(
      without_gil([&] { return train(parts, options, callbacks, resume ? &*resume : nullptr); }));
}

}  // namespace

void bind_train(py::module_& m) {
  m.def(
      "time_bin_edges", [] { return to_array(TimeHistogram::edges()); },
      "Edges in seconds of the bins of gradient_seconds and update_seconds.");
  py::class_<Checkpoint>(m, "Resumption", "What a run goes on from.")
      .def(py::init(&to_checkpoint), py::kw_only(), py::arg("vectors").noconvert(),
           py::arg("last_updates").noconvert(), py::arg("updates"), py::arg("batches"),
           py::arg("initial_loss"), py::arg("staleness"), py::arg("behind").noconvert(),
           py::arg("shrink"), py::arg("mode") = py::none())
      .def_property_readonly(
          "vectors",
          [](const py::object& self) {
            const auto& checkpoint = py::cast<const Checkpoint&>(self);
            const auto d = static_cast<py::ssize_t>(checkpoint.dimension);
            const auto all = static_cast<py::ssize_t>(checkpoint.vectors.size());
            return array_of(self, checkpoint.vectors, {all / d, d});
          },
          "Theta and the rule's states, [1 + S, d].")
      .def_property_readonly(
          "last_updates",
          [](const py::object& self) { return array_of(self, &Checkpoint::last_updates); },
          "Norm of each variable's last update, with a stage-aware staleness policy.")
      .def_property_readonly("updates", [](const Checkpoint& c) { return c.position.updates; })
      .def_property_readonly("batches", [](const Checkpoint& c) { return c.position.batches; })
      .def_readonly("initial_loss", &Checkpoint::initial_loss)
      .def_readonly("staleness", &Checkpoint::staleness, "What the staleness policy has gathered.")
      .def_property_readonly(
          "behind", [](const py::object& self) { return array_of(self, &Checkpoint::behind); },
          "Theta without the decay that it has yet to get, [d]; empty: it has all.")
      .def_property_readonly(
          "shrink",
          [](const Checkpoint& c) { return Shrink(c.shrink.total, c.shrink.done, c.shrink.next); },
          "How far that decay has come.")
      .def_property_readonly(
          "mode",
          [](const Checkpoint& c) {
            return std::pair(to_array(c.mode.words), to_array(c.mode.vectors));
          },
          "By a mode, what its server and its workers have beside all this: numbers, uint64 [n], "
          "and "
          "vectors of the parameters' length, one after another; empty: there is no mode.")
      .def_property_readonly(
          "running",
          [](const Checkpoint& c) {
            return c.running ? std::optional(to_running(*c.running)) : std::nullopt;
          },
          "Running statistics, as of TrackedSource.running; None: the source has none.");
  m.def("train", train_model, py::arg("training"), py::arg("watch"), py::arg("resume") = py::none(),
        py::arg("recorded_passes") = 0, py::arg("leases") = py::none(),
        py::arg("synchronisation") = py::none(), py::arg("rows") = py::none(),
        "Trains and returns what engine/result.h calls TrainResult, as a dict.");
}

}  // namespace leashed
