#include <algorithm>
#include <limits>
#include <tuple>

#include "choice.h"
#include "data.h"
#include "leashed/discipline/registry.h"
#include "leashed/engine/observers/registry.h"
#include "leashed/simulation/play_record.h"
#include "leashed/staleness/registry.h"
#include "leashed/trace/trace_reader.h"
#include "leashed/training/in_order.h"
#include "leashed/update/registry.h"
#include "mode_counts.h"
#include "pacing.h"
#include "parts.h"
#include "shards.h"
#include "training.h"

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
  all["trainer_iterations"] = to_array(std::move(result.trainers.iterations));
  all["rounds"] = to_array(std::move(result.trainers.rounds));
  all["round_seconds"] = to_array(std::move(result.trainers.seconds));
  all["drawn"] = result.trainers.drawn;
  all["bytes_out"] = result.trainers.bytes_out;
  all["bytes_in"] = result.trainers.bytes_in;
  all["row_bytes_out"] = result.trainers.row_bytes_out;
  all["row_bytes_in"] = result.trainers.row_bytes_in;
  all["row_waits"] = to_array(std::move(result.trainers.row_seconds));
  all["models"] = to_array(std::move(result.models));
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

TrainersPlan plan_of(std::size_t count, const std::optional<PyChoice>& machine,
                     const std::string& pace, std::vector<std::uint64_t> starts,
                     std::vector<double> gaps, std::size_t servers, std::size_t parts,
                     double bandwidth, double latency, const std::string& compression, bool mean,
                     const std::optional<RowServersPlan>& rows) {
  require_some(count, "count");
  require_some(servers, "servers");
  require_some(parts, "parts");
  TrainersPlan plan{.count = count,
                    .servers = servers,
                    .parts = parts,
                    .bandwidth = bandwidth,
                    .latency = latency,
                    .codec = codec_of(compression),
                    .mean = mean,
                    .rows = rows.value_or(RowServersPlan{})};
  if (machine) {
    plan.machine = make_synchroniser(to_choice(*machine));
    plan.pace = pace_of(pace, std::move(starts), std::move(gaps));
  }
  return plan;
}

// Replicas of theta, each with a staleness policy of its own.
struct Replicas {
  std::vector<std::unique_ptr<const StalenessPolicy>> policies;
  std::vector<std::unique_ptr<Discipline>> disciplines;
};

Replicas replicas_of(const Choice& choice, const Choice& staleness,
                     const DisciplineContext& context, const TrainersPlan& plan) {
  Replicas made;
  for (std::size_t t = 0; t < plan.count; ++t) {
    const StalenessPolicy& own = *made.policies.emplace_back(make_staleness(staleness));
    const DisciplineContext its{
        .initial = context.initial,
        .dimension = context.dimension,
        .workers = context.workers,
        .readers = context.readers,
        .rule = context.rule,
        .staleness = own,
        .block_ends = context.block_ends,
        .synchronisers = plan.machine ? std::size_t{1} : 0,
    };
    made.disciplines.push_back(make_discipline(choice, its));
  }
  return made;
}

// Spans of a vector in which all lies so much further back, round its end.
std::vector<ShardSpan> shifted(const std::vector<ShardSpan>& from, std::size_t shift,
                               std::size_t dimension) {
  std::vector<ShardSpan> to;
  for (const auto& [begin, end] : from) {
    const std::size_t first = begin + shift, last = end + shift;
    if (first < dimension) to.push_back({first, std::min(last, dimension)});
    if (last > dimension) {
      to.push_back({std::max(first, dimension) - dimension, last - dimension});
    }
  }
  std::ranges::sort(to, {}, &ShardSpan::begin);
  std::vector<ShardSpan> merged;
  for (const ShardSpan& span : to) {
    if (!merged.empty() && merged.back().end == span.begin) {
      merged.back().end = span.end;
    } else {
      merged.push_back(span);
    }
  }
  return merged;
}

PySpans to_pairs(const std::vector<ShardSpan>& spans) {
  PySpans pairs;
  for (const ShardSpan& span : spans) pairs.emplace_back(span.begin, span.end);
  return pairs;
}

std::pair<std::vector<PySpans>, double> sharding_of(const std::string& kind, std::size_t shards,
                                                    const std::vector<std::size_t>& ends,
                                                    const std::vector<double>& costs) {
  require_some(shards, "shards");
  require_some(ends.size(), "ends");
  if (!std::is_sorted(ends.begin(), ends.end())) throw py::value_error("ends must ascend");
  Sharding made;
  if (kind == "layerwise") {
    made = layerwise(ends, shards);
  } else if (kind == "memorywise") {
    made = memorywise(ends.back(), shards);
  } else if (kind == "packed") {
    if (costs.size() != ends.size()) throw py::value_error("costs must be as many as ends");
    made = packed(ends, costs, shards);
  } else {
    throw py::value_error("kind must be layerwise, memorywise or packed");
  }
  std::vector<PySpans> spans;
  for (const auto& shard : made.shards) spans.push_back(to_pairs(shard));
  return {spans, made.imbalance};
}

struct PyVirtualTime {
  Choice compute, update, copy;
  std::vector<std::pair<double, std::uint32_t>> commands;
  std::optional<Choice> network;
  std::vector<PyMemberChange> changes;
  std::pair<double, double> failing;
  double detection;
  std::optional<TrainersPlan> trainers;
  std::vector<PySpans> shards;
  std::vector<std::uint32_t> servers_of_tables;
};

py::dict simulate_model(const PyTraining& training, const PyWatch& watch, const PyVirtualTime& time,
                        bool mode, const py::object& recording, bool looks_up) {
  const Trace* const record = recording.is_none() ? nullptr : &py::cast<const Trace&>(recording);
  const Assembly& given = training.parts;
  const GradientSource& source = given.source;
  const std::size_t workers = training.workers;
  for (const std::uint32_t server : time.servers_of_tables) {
    const bool none = server >= time.shards.size() && !(record && server == RowPlacement::kSpread);
    if (time.servers_of_tables.size() != given.tables.size() || none) {
      throw py::value_error("servers_of_tables must be one of the shards for each table");
    }
  }
  if (time.trainers && !time.trainers->rows.servers_of_tables.empty() &&
      time.trainers->rows.servers_of_tables.size() != given.tables.size()) {
    throw py::value_error("servers_of_tables must be a server for each table");
  }
  const auto made_rule = make_rule(given.rule, workers);
  const auto policy = make_staleness(given.staleness);
  // Plays the parts in the training's order.
  const auto playing = [&](const auto& play) {
    const py::gil_scoped_release release;
    return in_order(given, [&](const Assembly& parts, const Order& order) {
      const DisciplineContext context{parts.theta, source.dimension(),       workers, 1, *made_rule,
                                      *policy,     parts.source.block_ends()};
      return play(parts, order, context, parts.validation ? &*parts.validation : nullptr);
    });
  };
  const std::size_t trainers = mode || !time.trainers ? 1 : time.trainers->count;
  const auto observers = make_observers(given.observers, workers * trainers);
  const SimulationOptions options{workers,
                                  training.batch_size,
                                  training.seed,
                                  watch.until,
                                  watch.evaluate_every,
                                  time.compute,
                                  time.update,
                                  time.copy,
                                  time.commands,
                                  time.network,
                                  to_members(time.changes, time.failing, time.detection, workers),
                                  given.tables,
                                  time.servers_of_tables,
                                  given.stream,
                                  pointers(observers)};
  bool interrupted_in_callback = false;
  const TrainCallbacks callbacks = callbacks_of(watch, interrupted_in_callback);
  if (!mode) {
    const TrainersPlan plan = time.trainers.value_or(TrainersPlan{});
    return to_dict(playing([&](const Assembly& parts, const Order& order,
                               const DisciplineContext& context, const DatasetView* validation) {
      const Replicas played = replicas_of(parts.discipline, parts.staleness, context, plan);
      SimulationResult result = simulate(parts.source, parts.data, validation, parts.discipline,
                                         played.disciplines, context, options, callbacks, plan);
      order.to_model(result.training.parameters);
      order.each_to_model(result.models, source.dimension());
      return result;
    }));
  }
  const Sharding sharding = to_sharding(time.shards, source.dimension());
  if (record && !time.shards.empty()) {  // (It is a file of anybody's.)
    to_mode_shards(given.discipline.name, time.shards, source.dimension());
  }
  ModeResult result = playing([&](const Assembly& parts, const Order& order,
                                  const DisciplineContext& context, const DatasetView* validation) {
    const std::size_t d = source.dimension(), shift = order.shift();
    Sharding ordered = sharding;
    for (auto& spans : ordered.shards) spans = shifted(spans, shift, d);
    ModeResult played =
        record ? simulate_record(parts.source, parts.data, validation, parts.discipline, ordered,
                                 *record, looks_up, context, options, callbacks)
               : simulate_mode(parts.source, parts.data, validation, parts.discipline, ordered,
                               context, options, callbacks);
    for (ShardResult& shard : played.shards) shard.spans = shifted(shard.spans, d - shift, d);
    order.to_model(played.simulation.training.parameters);
    order.each_to_model(played.models, source.dimension());
    return played;
  });
  py::dict all = to_dict(std::move(result.simulation));
  add_counts(all, std::move(result.counts));
  all["models"] = to_array(std::move(result.models));
  py::list parts;
  for (ShardResult& shard : result.shards) {
    py::dict counts;
    counts["applied"] = shard.applied;
    counts["stale"] = shard.stale;
    counts["straggler"] = shard.straggler;
    counts["late"] = shard.late;
    counts["missing"] = shard.missing;
    parts.append(py::make_tuple(to_pairs(shard.spans), shard.updates,
                                to_array(std::move(shard.staleness)), counts));
  }
  all["shards"] = parts;
  return all;
}

}  // namespace

void bind_simulation(py::module_& m) {
  py::class_<RowServersPlan>(m, "RowServersPlan", "Embedding servers of virtual time.")
      .def(
          py::init([](std::size_t count, double bandwidth, double latency, double batch, double row,
                      std::size_t look_ahead, std::vector<std::uint32_t> servers_of_tables) {
            require_some(count, "count");
            for (const std::uint32_t server : servers_of_tables) {
              if (server >= count) throw py::value_error("servers_of_tables must be servers");
            }
            return RowServersPlan{
                count, bandwidth, latency, batch, row, look_ahead, std::move(servers_of_tables)};
          }),
          py::kw_only(), py::arg("count"), py::arg("bandwidth"), py::arg("latency"),
          py::arg("batch"), py::arg("row"), py::arg("look_ahead"), py::arg("servers_of_tables"));
  py::class_<TrainersPlan>(m, "TrainersPlan", "Trainers of virtual time, and how they synchronise.")
      .def(py::init(&plan_of), py::kw_only(), py::arg("count"), py::arg("machine"), py::arg("pace"),
           py::arg("starts"), py::arg("gaps"), py::arg("servers"), py::arg("parts"),
           py::arg("bandwidth"), py::arg("latency"), py::arg("compression"), py::arg("mean"),
           py::arg("rows") = py::none());
  m.def(
      "sharding", sharding_of, py::arg("kind"), py::arg("shards"), py::arg("ends"),
      py::arg("costs"),
      "What each of so many servers holds of parts that end at `ends`, as spans of parameters, and "
      "how uneven that is.");
  py::class_<PyVirtualTime>(m, "VirtualTime", "How long what takes, and what happens meanwhile.")
      .def(py::init([](const PyChoice& compute, const PyChoice& update, const PyChoice& copy,
                       std::vector<std::pair<double, std::uint32_t>> commands,
                       const std::optional<PyChoice>& network, std::vector<PyMemberChange> changes,
                       std::pair<double, double> failing, double detection,
                       const std::optional<TrainersPlan>& trainers, std::vector<PySpans> shards,
                       std::vector<std::uint32_t> servers_of_tables) {
             return PyVirtualTime{to_choice(compute),
                                  to_choice(update),
                                  to_choice(copy),
                                  std::move(commands),
                                  network ? std::optional(to_choice(*network)) : std::nullopt,
                                  std::move(changes),
                                  failing,
                                  detection,
                                  trainers,
                                  std::move(shards),
                                  std::move(servers_of_tables)};
           }),
           py::kw_only(), py::arg("compute"), py::arg("update"), py::arg("copy"),
           py::arg("commands") = std::vector<std::pair<double, std::uint32_t>>(),
           py::arg("network") = py::none(), py::arg("changes") = std::vector<PyMemberChange>(),
           py::arg("failing") = std::pair<double, double>(),
           py::arg("detection") = std::numeric_limits<double>::infinity(),
           py::arg("trainers") = py::none(), py::arg("shards") = std::vector<PySpans>(),
           py::arg("servers_of_tables") = std::vector<std::uint32_t>());
  m.def("simulate", simulate_model, py::arg("training"), py::arg("watch"), py::arg("time"),
        py::arg("mode"), py::arg("record") = py::none(), py::arg("looks_up") = false,
        "Trains in virtual time, by a mode where the training's `discipline` is one, and returns "
        "what train does, and how many workers were in their updates: for how many seconds each "
        "number, and when it changed. record: of a training by that mode, by which it goes; "
        "looks_up: "
        "as of replay.");
}

}  // namespace leashed
