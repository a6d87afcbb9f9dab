#include <memory>

#include "assembly.h"
#include "data.h"
#include "interrupted.h"
#include "parts.h"
#include "signals.h"

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
  return py::dict("updates"_a = result.t, "parameters"_a = to_array(std::move(result.parameters)),
                  "last"_a = last, "before"_a = to_array(std::move(result.before)),
                  "gradient"_a = to_array(std::move(result.gradient)),
                  "published"_a = result.published, "dropped"_a = result.dropped,
                  "excluded"_a = result.excluded, "given_up"_a = result.given_up,
                  "ended"_a = result.ended, "difference"_a = result.difference);
}

py::dict replay_trace(const Trace& trace, const GradientSource& source, const FloatArray& theta,
                      const py::object& x, const py::array& y, const PyChoice& discipline,
                      const PyChoice& rule, const PyChoice& staleness, bool mode,
                      std::size_t threads, std::size_t batch_size, std::uint64_t seed,
                      std::uint64_t until, const std::optional<Checkpoint>& resume,
                      const std::optional<FloatArray>& weights) {
  require_some(threads, "threads");
  require_some(batch_size, "batch_size");
  const Assembly parts =
      assembly_of(source, theta, x, y, weights, {discipline, rule, staleness}, seed);
  const ReplayOptions options{threads, batch_size, seed, until, interrupted};
  Replayed result = without_gil([&] {
    return mode ? replay_mode(parts, trace, options)
                : replay(parts, trace, options, resume ? &*resume : nullptr);
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
          "What the training began with, as its caller gave it.");
  m.def("replay", replay_trace, py::arg("trace"), py::arg("source"), py::arg("theta").noconvert(),
        py::arg("x"), py::arg("y").noconvert(), py::arg("discipline"), py::arg("rule"),
        py::arg("staleness"), py::arg("mode"), py::arg("threads"), py::arg("batch_size"),
        py::arg("seed"), py::arg("until"), py::arg("resume"), py::arg("weights").noconvert(),
        "Makes a recorded training again, by a mode where `discipline` is one, and returns what "
        "trace/replayed.h calls Replayed, as a dict.");
}

}  // namespace leashed
