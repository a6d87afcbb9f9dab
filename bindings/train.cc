#include <algorithm>
#include <tuple>

#include "choice.h"
#include "leashed/discipline/registry.h"
#include "leashed/discipline/updater.h"
#include "leashed/engine/trainer.h"
#include "leashed/model/sparse_linear.h"
#include "leashed/staleness/registry.h"
#include "leashed/staleness/statistics.h"
#include "leashed/update/registry.h"
#include "parts.h"
#include "sparse.h"

namespace leashed {
namespace {

// Data as the engine takes it: x is an array or sparse rows, y int32 or float32.
DatasetView view_of(const py::object& given, const py::array& y, const GradientSource& source) {
  if (!py::isinstance<FloatArray>(given)) {
    throw py::type_error("x must be a float32 array, for sparse rows source a SparseLinear");
  }
  const auto x = py::cast<FloatArray>(given);
  if (x.ndim() != 2 || static_cast<std::size_t>(x.shape(1)) != source.features()) {
    throw py::value_error("x must have shape [rows, " + std::to_string(source.features()) + "]");
  }
  const auto rows = static_cast<std::size_t>(x.shape(0));
  return {x.data(), targets_of(y, rows), rows, source.features()};
}

// Sparse rows in the order of a run, what they are to give, and the view of both.
struct OrderedData {
  OrderedData(std::shared_ptr<const OrderedRows> given, const py::array& y)
      : rows(std::move(given)) {
    const Targets targets = targets_of(y, rows->rows());
    if (targets.labels) {
      labels = rows->shuffled(targets.labels);
    } else {
      values = rows->shuffled(targets.values);
    }
  }
  DatasetView view() const {
    return {nullptr, labels.empty() ? Targets(values.data()) : Targets(labels.data()), rows->rows(),
            rows->features(), rows->view()};
  }

  std::shared_ptr<const OrderedRows> rows;
  std::vector<std::int32_t> labels;
  std::vector<float> values;
};

// True at Ctrl-C; any other exception of a signal handler is thrown.
bool interrupted() {
  const py::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() == 0) return false;
  if (!PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) throw py::error_already_set();
  PyErr_Clear();
  return true;
}

py::dict to_dict(const Evaluated& e) {
  using namespace pybind11::literals;
  return py::dict("seconds"_a = e.seconds, "updates"_a = e.updates, "loss"_a = e.loss,
                  "accuracy"_a = e.accuracy, "validation_accuracy"_a = e.validation_accuracy,
                  "gradients"_a = e.gradients, "memory_bytes"_a = e.memory_bytes,
                  "live_vectors"_a = e.live_vectors, "staleness"_a = to_array(e.staleness));
}

py::dict to_dict(TrainResult result) {
  using namespace pybind11::literals;
  py::list evaluations;
  for (const Evaluated& e : result.evaluations) evaluations.append(to_dict(e));
  return py::dict(
      "outcome"_a = result.outcome, "reason"_a = std::string(stop_reason_name(result.reason)),
      "parameters"_a = to_array(std::move(result.parameters)), "evaluations"_a = evaluations,
      "elapsed"_a = result.elapsed, "updates"_a = result.updates, "gradients"_a = result.gradients,
      "dropped"_a = result.dropped, "excluded"_a = result.excluded,
      "staleness"_a = to_array(std::move(result.staleness)),
      "staleness_compute"_a = to_array(std::move(result.staleness_compute)),
      "staleness_schedule"_a = to_array(std::move(result.staleness_schedule)),
      "tries"_a = to_array(std::move(result.tries)),
      "gradient_seconds"_a = to_array(std::move(result.gradient_seconds.counts)),
      "gradient_seconds_total"_a = result.gradient_seconds.total,
      "update_seconds"_a = to_array(std::move(result.update_seconds.counts)),
      "update_seconds_total"_a = result.update_seconds.total,
      "read_seconds"_a = result.read_seconds, "sampling_seconds"_a = result.sampling_seconds,
      "waiting_seconds"_a = result.waiting_seconds, "running_seconds"_a = result.running_seconds,
      "peak_vectors"_a = result.peak_vectors, "peak_memory_bytes"_a = result.peak_memory_bytes);
}

std::vector<double> time_bin_edges() {
  std::vector<double> edges;
  for (int octave = 0; octave < TimeHistogram::kOctaves; ++octave) {
    for (std::size_t part = 0; part < TimeHistogram::kPerOctave; ++part) {
      edges.push_back(std::ldexp(1.0 + static_cast<double>(part) / TimeHistogram::kPerOctave,
                                 TimeHistogram::kLowest + octave));
    }
  }
  edges.push_back(std::ldexp(1.0, TimeHistogram::kLowest + TimeHistogram::kOctaves));
  return edges;
}

using Settings = std::map<std::string, double>;
using Shrink = std::tuple<double, std::vector<double>, std::size_t>;  // ShrinkProgress

// What a run goes on from.
struct Resumption {
  FloatArray vectors;       // [1 + S, d]: theta and the rule's states
  FloatArray last_updates;  // [variables], with a stage-aware staleness policy
  Position position;
  double initial_loss;
  std::vector<std::uint64_t> staleness;  // StalenessStatistics
  FloatArray behind;                     // [d], where decay is behind; else empty
  ShrinkProgress shrink;
};

// Parameters in the model's order and in the one that a run has them in, which is another on sparse
// rows: columns by how often they occur, the intercepts first.
struct Order {
  const OrderedRows* rows = nullptr;
  std::size_t outputs = 0;

  void to_run(const float* given, std::size_t n, float* out) const {
    if (!rows) return void(std::copy_n(given, n, out));
    std::ranges::copy(rows->ordered(given, outputs), out);
  }
  void to_model(const float* given, std::size_t n, float* out) const {
    if (!rows) return void(std::copy_n(given, n, out));
    std::ranges::copy(rows->original({given, given + n}, outputs), out);
  }
  // Of the variables: weights and intercepts.
  void swap(float* values, std::size_t n) const {
    if (rows) std::reverse(values, values + n);
  }
};

AlignedArray<float> to_buffer(const Resumption& from, const Layout& layout, const Order& order) {
  if (from.vectors.ndim() != 2 ||
      static_cast<std::size_t>(from.vectors.shape(0)) != 1 + layout.states ||
      static_cast<std::size_t>(from.vectors.shape(1)) != layout.dimension) {
    throw py::value_error("vectors must have shape [" + std::to_string(1 + layout.states) + ", " +
                          std::to_string(layout.dimension) + "]");
  }
  require_length(from.last_updates, layout.blocks, "last_updates");
  AlignedArray<float> buffer(layout.length());
  std::fill_n(buffer.data(), layout.length(), 0.0f);
  for (std::size_t k = 0; k <= layout.states; ++k) {
    order.to_run(from.vectors.data(static_cast<py::ssize_t>(k), 0), layout.dimension,
                 buffer.data() + k * layout.stride());
  }
  float* last_updates = buffer.data() + layout.last_updates();
  std::copy_n(from.last_updates.data(), layout.blocks, last_updates);
  order.swap(last_updates, layout.blocks);
  return buffer;
}

// Where updates are made in place.
std::vector<float> to_behind(const Resumption& from, const DisciplineContext& context,
                             const Order& order) {
  const std::size_t parts = LazyShrink::parts(context.sparse.outputs, context.sparse.active);
  if (from.shrink.done.size() != parts || from.shrink.next >= parts) {
    throw py::value_error(
        "data has other columns than those of the run to resume; give the same data");
  }
  require_length(from.behind, context.dimension, "behind");
  std::vector<float> theta(context.dimension);
  order.to_run(from.behind.data(), theta.size(), theta.data());
  return theta;
}

Resumption to_resumption(const Checkpoint& checkpoint, const Layout& layout,
                         const StalenessPolicy& staleness, const Order& order) {
  const auto& [buffer, t, behind] = checkpoint.state;
  FloatArray vectors({1 + layout.states, layout.dimension});
  for (std::size_t k = 0; k <= layout.states; ++k) {
    order.to_model(buffer + k * layout.stride(), layout.dimension,
                   vectors.mutable_data(static_cast<py::ssize_t>(k), 0));
  }
  const auto blocks = static_cast<py::ssize_t>(layout.blocks);
  FloatArray last_updates(blocks, buffer + layout.last_updates());
  order.swap(last_updates.mutable_data(), layout.blocks);
  const StalenessStatistics* statistics = staleness.statistics();
  Resumption result{std::move(vectors),
                    std::move(last_updates),
                    checkpoint.position,
                    checkpoint.initial_loss,
                    statistics ? statistics->save() : std::vector<std::uint64_t>{},
                    FloatArray(0),
                    {}};
  if (behind.shrink) {
    result.behind = FloatArray(static_cast<py::ssize_t>(layout.dimension));
    order.to_model(behind.theta, layout.dimension, result.behind.mutable_data());
    result.shrink = *behind.shrink;
  }
  return result;
}

py::dict train_network(const GradientSource& given_source, const FloatArray& given_theta,
                       const py::object& x, const py::array& y,
                       const std::optional<py::object>& validation_x,
                       const std::optional<py::array>& validation_y,
                       const PyChoice& discipline_choice, const PyChoice& rule_choice,
                       const PyChoice& staleness_choice, std::size_t threads,
                       std::size_t batch_size, std::uint64_t seed, const Settings& until,
                       double evaluate_every, const std::optional<py::function>& progress,
                       const std::optional<py::function>& checkpoint, double checkpoint_every,
                       const std::optional<Resumption>& resume) {
  require_length(given_theta, given_source.dimension(), "theta");
  // Sparse rows are trained on with their columns, and with them theta, in another order.
  const auto* linear = dynamic_cast<const SparseLinear*>(&given_source);
  std::optional<SparseLinear> ordered_source;
  std::optional<OrderedData> ordered, ordered_validation;
  std::vector<float> ordered_theta;
  std::optional<DatasetView> validation;
  if (linear) {
    ordered_source.emplace(linear->bias_first());
    ordered.emplace(py::cast<const PySparseRows&>(x).ordered(seed), y);
    ordered_theta = ordered->rows->ordered(given_theta.data(), linear->outputs());
    if (validation_x && validation_y) {
      const auto& rows = py::cast<const PySparseRows&>(*validation_x);
      ordered_validation.emplace(
          std::make_shared<const OrderedRows>(rows.view(), rows.rows(), *ordered->rows),
          *validation_y);
      validation = ordered_validation->view();
    }
  } else if (validation_x && validation_y) {
    validation = view_of(*validation_x, *validation_y, given_source);
  }
  const GradientSource& source = ordered_source ? *ordered_source : given_source;
  const float* theta = ordered ? ordered_theta.data() : given_theta.data();
  const DatasetView data = ordered ? ordered->view() : view_of(x, y, source);

  TrainOptions options{threads, batch_size, seed, {}, evaluate_every, checkpoint_every};
  if (resume) {
    options.from = resume->position;
    options.initial_loss = resume->initial_loss;
  }
  const auto rule_of = [&until](const char* name, auto& value) {
    if (const auto found = until.find(name); found != until.end()) {
      value = static_cast<std::remove_reference_t<decltype(value)>>(found->second);
    }
  };
  rule_of("loss_fraction", options.until.loss_fraction);
  rule_of("loss", options.until.loss);
  rule_of("updates", options.until.updates);
  rule_of("batches", options.until.batches);
  rule_of("seconds", options.until.seconds);
  rule_of("divergence", options.until.divergence);

  // Ctrl-C while Python runs the progress callback: Python raises there what it would tell us.
  bool interrupted_in_progress = false;
  const auto call = [&](const py::function& callback, auto&&... arguments) {
    try {
      callback(std::forward<decltype(arguments)>(arguments)...);
    } catch (py::error_already_set& error) {
      if (!error.matches(PyExc_KeyboardInterrupt)) throw;
      interrupted_in_progress = true;
    }
  };
  TrainCallbacks callbacks{[&] { return interrupted_in_progress || interrupted(); }, {}, {}};
  if (progress) {
    callbacks.progress = [&](const Evaluated& now, double initial_loss) {
      const py::gil_scoped_acquire acquire;
      call(*progress, to_dict(now), initial_loss);
    };
  }
  const auto rule = make_rule(to_choice(rule_choice), threads);
  const auto staleness = make_staleness(to_choice(staleness_choice));
  DisciplineContext context{theta,      source.dimension(), threads, 1, *rule,
                            *staleness, source.block_ends()};
  const Layout layout = Updater(context).layout();
  const Order order = ordered ? Order{ordered->rows.get(), linear->outputs()} : Order{};
  if (ordered && source.updates_in_place(*rule) && staleness_choice.first == "none" &&
      staleness_choice.second.empty()) {
    context.sparse = {(ordered->rows->active() + 1) * linear->outputs(), linear->outputs(),
                      ordered->rows->mean_squares()};
  }
  if (checkpoint) {
    callbacks.checkpoint = [&](const Checkpoint& reached) {
      const py::gil_scoped_acquire acquire;
      call(*checkpoint, to_resumption(reached, layout, *staleness, order));
    };
  }
  AlignedArray<float> state;
  std::vector<float> behind;
  if (resume) {
    state = to_buffer(*resume, layout, order);
    context.state = state.data();
    context.t = resume->position.updates;
    if (StalenessStatistics* statistics = staleness->statistics()) {
      statistics->restore(resume->staleness);
    }
    if (context.sparse.active > 0 && resume->behind.size() > 0) {
      behind = to_behind(*resume, context, order);
      context.behind = {behind.data(), &resume->shrink};
    }
  }
  const Choice discipline_kind = to_choice(discipline_choice);
  TrainResult result;
  bool in_place = false;
  {
    const py::gil_scoped_release release;
    const auto discipline = make_discipline(discipline_kind, context);
    in_place = discipline->in_place();
    result =
        train(source, data, validation ? &*validation : nullptr, *discipline, options, callbacks);
  }
  if (ordered) {
    result.parameters = ordered->rows->original(result.parameters, linear->outputs());
  }
  py::dict figures = to_dict(std::move(result));
  figures["in_place"] = in_place;
  return figures;
}

}  // namespace

void bind_train(py::module_& m) {
  m.def(
      "time_bin_edges", [] { return to_array(time_bin_edges()); },
      "Edges in seconds of the bins of gradient_seconds and update_seconds.");
  py::class_<Resumption>(m, "Resumption", "What a run goes on from.")
      .def(py::init([](FloatArray vectors, FloatArray last_updates, std::uint64_t updates,
                       std::uint64_t batches, double initial_loss,
                       std::vector<std::uint64_t> staleness, FloatArray behind, Shrink shrink) {
             auto& [total, done, next] = shrink;
             return Resumption{std::move(vectors),
                               std::move(last_updates),
                               {updates, batches},
                               initial_loss,
                               std::move(staleness),
                               std::move(behind),
                               {total, std::move(done), next}};
           }),
           py::arg("vectors").noconvert(), py::arg("last_updates").noconvert(), py::arg("updates"),
           py::arg("batches"), py::arg("initial_loss"), py::arg("staleness"),
           py::arg("behind").noconvert(), py::arg("shrink"))
      .def_readonly("vectors", &Resumption::vectors, "Theta and the rule's states, [1 + S, d].")
      .def_readonly("last_updates", &Resumption::last_updates,
                    "Norm of each variable's last update, with a stage-aware staleness policy.")
      .def_property_readonly("updates", [](const Resumption& r) { return r.position.updates; })
      .def_property_readonly("batches", [](const Resumption& r) { return r.position.batches; })
      .def_readonly("initial_loss", &Resumption::initial_loss)
      .def_readonly("staleness", &Resumption::staleness, "What the staleness policy has gathered.")
      .def_readonly("behind", &Resumption::behind,
                    "Theta without the decay that it has yet to get, [d]; empty: it has all.")
      .def_property_readonly(
          "shrink",
          [](const Resumption& r) { return Shrink(r.shrink.total, r.shrink.done, r.shrink.next); },
          "How far that decay has come.");
  m.def("train", train_network, py::arg("source"), py::arg("theta").noconvert(), py::arg("x"),
        py::arg("y").noconvert(), py::arg("validation_x").noconvert(),
        py::arg("validation_y").noconvert(), py::arg("discipline"), py::arg("rule"),
        py::arg("staleness"), py::arg("threads"), py::arg("batch_size"), py::arg("seed"),
        py::arg("until"), py::arg("evaluate_every"), py::arg("progress"), py::arg("checkpoint"),
        py::arg("checkpoint_every"), py::arg("resume"),
        "Trains and returns what engine/trainer.h calls TrainResult, as a dict.");
}

}  // namespace leashed
