#include <cstdint>
#include <memory>
#include <vector>

#include "interrupted.h"
#include "leashed/base/error.h"
#include "leashed/table/row_placement.h"
#include "parts.h"
#include "shards.h"
#include "signals.h"
#include "training.h"

namespace leashed {
namespace {

py::dict to_dict(const ReplayedPart& part) {
  using namespace pybind11::literals;
  const TraceRecord& record = part.record;
  return py::dict("worker"_a = part.worker, "batch"_a = record.k, "read"_a = record.t_read,
                  "staleness"_a = record.staleness,
                  "staleness_schedule"_a = record.staleness_schedule, "tries"_a = record.tries,
                  "factor"_a = part.factor, "loss"_a = part.loss);
}

py::dict to_dict(Replayed result) {
  using namespace pybind11::literals;
  py::list last;
  for (const ReplayedPart& part : result.last) last.append(to_dict(part));
  return py::dict(
      "updates"_a = result.t, "parameters"_a = to_array(std::move(result.parameters)),
      "last"_a = last, "before"_a = to_array(std::move(result.before)),
      "gradient"_a = to_array(std::move(result.gradient)), "published"_a = result.published,
      "dropped"_a = result.dropped, "excluded"_a = result.excluded, "given_up"_a = result.given_up,
      "ended"_a = result.ended, "difference"_a = result.difference, "observed"_a = result.observed);
}

py::dict replay_trace(const Trace& trace, const PyTraining& training, bool mode,
                      std::uint64_t until, const std::optional<Checkpoint>& resume, bool looks_up,
                      const std::vector<PySpans>& shards,
                      const std::vector<std::uint32_t>& servers_of_tables) {
  ReplayOptions options{training.workers, training.batch_size, training.seed, until, interrupted};
  options.looks_up = looks_up;
  if (!shards.empty()) {
    const Assembly& parts = training.parts;
    const ModeShards servers =
        to_mode_shards(parts.discipline.name, shards, parts.source.dimension());
    if (servers.servers() > 1 && servers.by != Deciding::alike) {
      throw Error("it is of several servers, which by this mode decide by themselves");
    }
    options.sharding = servers.sharding;
  }
  for (const std::uint32_t server : servers_of_tables) {
    const bool one = server == RowPlacement::kSpread || server < shards.size();
    if (servers_of_tables.size() != training.parts.tables.size() || !one) {
      throw Error("it has not of each table the server that it had");
    }
  }
  options.servers_of_tables = servers_of_tables;
  Replayed result = without_gil([&] {
    return mode ? replay_mode(training.parts, trace, options)
                : replay(training.parts, trace, options, resume ? &*resume : nullptr);
  });
  if (result.interrupted) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    throw py::error_already_set();
  }
  return to_dict(std::move(result));
}

}  // namespace

void bind_replay(py::module_& m) {
  py::class_<Trace>(m, "Trace", "The record of a training, every page checked.")
      .def(py::init([](const std::string& path) {
             return without_gil([&path] {
               return std::make_unique<Trace>(path, [watch = SignalWatch()]() mutable { watch(); });
             });
           }),
           py::arg("path"))
      .def_property_readonly(
          "header", [](const Trace& trace) { return py::bytes(trace.header()); },
          "What the recording training's caller gave.")
      .def_property_readonly(
          "start", [](const Trace& trace) { return to_array(trace.start()); },
          "What the training began with, as its caller gave it.")
      .def_property_readonly(
          "ended", [](const Trace& trace) { return !trace.end().theta.empty(); },
          "Whether it has the training's end.");
  m.def(
      "replay", replay_trace, py::arg("trace"), py::arg("training"), py::arg("mode"),
      py::arg("until"), py::arg("resume"), py::arg("looks_up") = false,
      py::arg("shards") = std::vector<PySpans>(),
      py::arg("servers_of_tables") = std::vector<std::uint32_t>(),
      "Makes a recorded training again, by a mode where its `discipline` is one, and returns what "
      "trace/replayed.h calls Replayed, as a dict. looks_up: whether the record has when rows of "
      "tables were looked up. shards: of several servers what each had of the parameters; "
      "servers_of_tables: and of each table which one had all of its rows, or 2³² − 1.");
}

}  // namespace leashed
