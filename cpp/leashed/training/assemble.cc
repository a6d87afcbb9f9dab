#include "leashed/training/assemble.h"

#include <algorithm>
#include <functional>
#include <string>

#include "leashed/base/error.h"
#include "leashed/base/team.h"
#include "leashed/data/run_sampler.h"
#include "leashed/discipline/registry.h"
#include "leashed/discipline/updater.h"
#include "leashed/engine/observers/registry.h"
#include "leashed/modes/mode_replay.h"
#include "leashed/modes/mode_trace.h"
#include "leashed/row_store/local_rows.h"
#include "leashed/sparse/lazy_shrink.h"
#include "leashed/trace/replay.h"
#include "leashed/training/in_order.h"
#include "leashed/update/registry.h"

namespace leashed {
namespace {

// What a training in its order is made from: its parts, and where it begins.
struct Beginning {
  Beginning(const Assembly& parts, std::size_t workers)
      : rule(make_rule(parts.rule, workers)),
        staleness(make_staleness(parts.staleness)),
        context{parts.theta, parts.source.dimension(), workers, 1, *rule,
                *staleness,  parts.source.block_ends()} {}
  Beginning(const Beginning&) = delete;

  // At a checkpoint in the model's order.
  void resume(const Checkpoint& given, const Order& order) {
    const Layout layout = Updater(context).layout();
    require_fit(given, layout, context.sparse);
    from = given;
    order.to_training(*from, context.dimension);
    resumed.emplace(*from, layout, *staleness, context);
  }

  const std::unique_ptr<const Rule> rule;
  const std::unique_ptr<const StalenessPolicy> staleness;
  DisciplineContext context;
  std::optional<Checkpoint> from;
  std::optional<Resumed> resumed;
};

// Where updates may be made in place, if they may.
SparseUse use_of(const Assembly& parts, const Order& order, const Rule& rule, std::size_t batch) {
  const InPlaceUpdates* const in_place = parts.source.in_place();
  const double l2 = parts.source.described().l2;
  if (!parts.ordered || !in_place || !in_place->takes(rule) || parts.staleness.name != "none" ||
      (l2 != 0 &&  // an infinite rate times 0 would be NaN
       !LazyShrink::suits(rule.largest_lr() * l2, RunSampler::run_of(batch)))) {
    return {};
  }
  return {order.shape().dimension(parts.ordered->active()), order.shape(),
          parts.ordered->mean_squares()};
}

void to_model(Replayed& result, const Order& order) {
  for (std::vector<float>* vector : {&result.parameters, &result.before, &result.gradient}) {
    order.to_model(*vector);
  }
}

TrainCallbacks in_model_order(TrainCallbacks callbacks, const Order& order, std::size_t dimension) {
  if (callbacks.checkpoint) {
    callbacks.checkpoint = [&order, dimension, hand_on = callbacks.checkpoint](Checkpoint taken) {
      order.to_model(taken, dimension);
      hand_on(std::move(taken));
    };
  }
  if (callbacks.keep) {
    callbacks.keep = [&order, dimension, hand_on = callbacks.keep](Checkpoint taken) {
      order.to_model(taken, dimension);
      hand_on(std::move(taken));
    };
  }
  return callbacks;
}

// None: it was interrupted.
std::optional<std::vector<std::uint64_t>> digests_of(
    const std::vector<std::shared_ptr<Table>>& tables, const std::function<bool()>& interrupted) {
  struct Interrupted {};
  Interruption interruption(interrupted);
  std::vector<std::uint64_t> all;
  try {
    for (const auto& table : tables) {
      const Table::Digest digest = table->digest([&interruption] {
        if (interruption()) throw Interrupted();
      });
      all.insert(all.end(), digest.begin(), digest.end());
    }
  } catch (const Interrupted&) {
    return std::nullopt;
  }
  return all;
}

// Without digests the trace has no end: what it has is what a killed process would have left.
void finish(TraceWriter& trace, TrainResult& result,
            const std::vector<std::shared_ptr<Table>>& tables, const TrainCallbacks& callbacks) {
  if (const auto digests = digests_of(tables, callbacks.interrupted)) {
    trace.finish(result.updates, result.parameters, *digests);
    result.recording_failure = trace.failure();
  } else {
    if (result.reason != StopReason::not_finite) result.reason = StopReason::interrupted;
    result.recording_failure = "interrupted while digests of the tables' rows were made";
  }
}

void compare_tables(Replayed& result, const std::vector<std::shared_ptr<Table>>& tables,
                    const ReplayOptions& options) {
  if (!result.ended) return;
  const auto digests = digests_of(tables, options.interrupted);
  result.interrupted |= !digests;
  if (digests) compare_rows(result, *digests);
}

// With the source, the data and theta in the training's order.
TrainResult train_ordered(const Assembly& parts, const Order& order, TrainOptions options,
                          const TrainCallbacks& callbacks, const Checkpoint* from) {
  const GradientSource& source = parts.source;
  if (const std::size_t read = source.tables().size(); !parts.rows && parts.tables.size() != read) {
    throw Error("tables must be the " + std::to_string(read) + " that the source reads, got " +
                std::to_string(parts.tables.size()));
  }
  Beginning begin(parts, options.workers);
  DisciplineContext& context = begin.context;
  if (options.synchronisation) context.synchronisers = options.synchronisation->threads();
  const bool alone = !options.synchronisation && !options.leases;
  if (alone) context.sparse = use_of(parts, order, context.rule, options.batch_size);
  if (from) {
    begin.resume(*from, order);
    options.from = from->position;
    options.initial_loss = from->initial_loss;
  }
  const auto discipline = make_discipline(parts.discipline, context);
  std::optional<LocalRows> rows;
  if (parts.rows) {
    if (discipline->lockstep() || parts.recording) {
      throw Error("rows that are elsewhere cannot be updated in lockstep, nor recorded");
    }
    options.rows = parts.rows;
  } else if (!parts.tables.empty()) {
    if (parts.recording && options.workers > 1 && !discipline->lockstep()) {
      throw Error("rows that several threads update without an order cannot be recorded");
    }
    const std::size_t readers = std::min({options.workers, processors(), LocalRows::kReaders});
    rows.emplace(parts.tables, source.features_of_tables(), options.workers, readers,
                 discipline->lockstep(), options.from.updates, false, parts.recording.has_value());
    options.rows = &*rows;
  }
  options.stream = parts.stream;
  const auto observers = make_observers(parts.observers, options.workers);
  options.observers = pointers(observers);
  std::optional<TraceWriter> trace;
  if (const auto& recording = parts.recording) {
    const std::size_t factors =
        trace::factors(*begin.staleness, Updater(context).layout().blocks, discipline->lockstep());
    trace.emplace(recording->path, recording->header, recording->start, options.workers, factors);
    options.observers.push_back(&*trace);
  }
  TrainResult result =
      train(source, parts.data, parts.validation ? &*parts.validation : nullptr, *discipline,
            context, options, in_model_order(callbacks, order, context.dimension));
  if (trace) finish(*trace, result, parts.tables, callbacks);
  return result;
}

}  // namespace

TrainResult train(const Assembly& parts, const TrainOptions& options,
                  const TrainCallbacks& callbacks, const Checkpoint* from) {
  return in_order(parts, [&](const Assembly& ordered, const Order& order) {
    TrainResult result = train_ordered(ordered, order, options, callbacks, from);
    order.to_model(result.parameters);
    return result;
  });
}

ModeTrainResult train_mode(const Assembly& given, ModeTrainOptions options,
                           const TrainCallbacks& callbacks, const Checkpoint* from) {
  return in_order(given, [&](const Assembly& parts, const Order& order) {
    Beginning begin(parts, options.workers);
    if (from) begin.resume(*from, order);
    options.from = begin.from ? &*begin.from : nullptr;
    const modes::ServerPolicy machine = modes::make_server_policy(parts.discipline);
    const auto observers = make_observers(parts.observers, options.workers);
    options.observers = pointers(observers);
    options.tables = parts.tables;
    options.stream = parts.stream;
    options.terms = parts.discipline.value("term_ns", 0) > 0;
    std::optional<TraceWriter> trace;
    std::optional<ModeRecorder> recorder;
    if (const auto& recording = parts.recording) {
      trace.emplace(recording->path, recording->header, recording->start, 1, 0);
      options.listener = &recorder.emplace(*trace);
    }
    const DatasetView* const validation = parts.validation ? &*parts.validation : nullptr;
    const TrainCallbacks ordered = in_model_order(callbacks, order, begin.context.dimension);
    ModeTrainResult result =
        options.elsewhere
            ? options.elsewhere->train(parts.source, parts.data, validation, machine.rule(),
                                       begin.context, options, ordered)
            : train_mode(parts.source, parts.data, validation, machine, begin.context, options,
                         ordered);
    if (trace) finish(*trace, result.training, parts.tables, callbacks);
    order.to_model(result.training.parameters);
    return result;
  });
}

Replayed replay(const Assembly& parts, const Trace& trace, const ReplayOptions& options,
                const Checkpoint* from) {
  return in_order(parts, [&](const Assembly& ordered, const Order& order) {
    Beginning begin(ordered, options.workers);
    begin.context.sparse = use_of(ordered, order, begin.context.rule, options.batch_size);
    if (from) begin.resume(*from, order);
    auto discipline = make_discipline(parts.discipline, begin.context);
    const bool lockstep = discipline->lockstep();
    ReplayOptions asked = options;
    if (discipline->sparse_runs()) {  // one after another, whoever made them
      discipline = make_discipline({"locked"}, begin.context);
      asked.in_place = &*discipline;
    }
    asked.stream = ordered.stream;
    asked.used = from ? from->position.batches : 0;
    const auto observers = make_observers(parts.observers, options.workers);
    asked.observers = pointers(observers);
    std::optional<LocalRows> rows;
    if (!parts.tables.empty()) {
      asked.rows = &rows.emplace(parts.tables, ordered.source.features_of_tables(), options.workers,
                                 0, lockstep);
    }
    Replayed result = replay(ordered.source, ordered.data, begin.context, lockstep, trace, asked);
    rows.reset();
    compare_tables(result, parts.tables, options);
    to_model(result, order);
    return result;
  });
}

Replayed replay_mode(const Assembly& given, const Trace& trace, const ReplayOptions& options) {
  return in_order(given, [&](const Assembly& parts, const Order& order) {
    Beginning begin(parts, options.workers);
    begin.context.readers += 3;
    ReplayOptions asked = options;
    asked.stream = parts.stream;
    const auto observers = make_observers(parts.observers, options.workers);
    asked.observers = pointers(observers);
    Replayed result = replay(parts.source, parts.data, modes::make_server_policy(parts.discipline),
                             begin.context, given.tables, trace, asked);
    compare_tables(result, given.tables, options);
    to_model(result, order);
    return result;
  });
}

}  // namespace leashed
