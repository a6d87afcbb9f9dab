#include "leashed/training/assemble.h"

#include <algorithm>
#include <string>

#include "leashed/base/error.h"
#include "leashed/base/team.h"
#include "leashed/columns/sparse_model.h"
#include "leashed/data/run_sampler.h"
#include "leashed/discipline/registry.h"
#include "leashed/discipline/updater.h"
#include "leashed/modes/mode_replay.h"
#include "leashed/modes/mode_trace.h"
#include "leashed/row_store/local_rows.h"
#include "leashed/sparse/lazy_shrink.h"
#include "leashed/trace/replay.h"
#include "leashed/update/registry.h"

namespace leashed {
namespace {

// Parameters in the model's order and in the one that a training has them in.
class Order {
 public:
  Order(const OrderedRows* rows, const ColumnShape& shape) : rows_(rows), shape_(shape) {}

  const ColumnShape& shape() const { return shape_; }

  void to_training(Checkpoint& checkpoint, std::size_t dimension) const {
    each(checkpoint, dimension,
         [this](const std::vector<float>& v) { return rows_->ordered(v.data(), shape_); });
  }
  void to_model(Checkpoint& checkpoint, std::size_t dimension) const {
    each(checkpoint, dimension,
         [this](const std::vector<float>& v) { return rows_->original(v, shape_); });
  }
  void to_model(std::vector<float>& parameters) const {
    if (rows_) parameters = rows_->original(parameters, shape_);
  }

 private:
  template <class F>
  void each(Checkpoint& checkpoint, std::size_t dimension, const F& reordered) const {
    if (!rows_) return;
    std::vector<float>& all = checkpoint.vectors;
    for (auto v = all.begin(); v != all.end(); v += static_cast<std::ptrdiff_t>(dimension)) {
      std::ranges::copy(reordered({v, v + static_cast<std::ptrdiff_t>(dimension)}), v);
    }
    if (!checkpoint.behind.empty()) checkpoint.behind = reordered(checkpoint.behind);
    // Of the variables: columns and intercepts.
    std::ranges::reverse(checkpoint.last_updates);
  }

  const OrderedRows* const rows_;
  const ColumnShape shape_;
};

// Sparse rows in the order of a training, with what they are to give.
struct OrderedData {
  OrderedData(std::shared_ptr<const OrderedRows> given, const Targets& targets)
      : rows(std::move(given)) {
    if (targets.labels) labels = rows->shuffled(targets.labels);
    if (targets.values) values = rows->shuffled(targets.values);
    if (targets.weights) weights = rows->shuffled(targets.weights);
    if (targets.users) users = rows->shuffled(targets.users);
  }
  DatasetView view() const {
    Targets targets = labels.empty() ? Targets(values.data()) : Targets(labels.data());
    if (!weights.empty()) targets.weights = weights.data();
    if (!users.empty()) targets.users = users.data();
    return {nullptr, targets, rows->rows(), rows->features(), rows->view()};
  }

  std::shared_ptr<const OrderedRows> rows;
  std::vector<std::int32_t> labels;
  std::vector<float> values, weights;
  std::vector<std::uint64_t> users;
};

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

void finish(TraceWriter& trace, TrainResult& result) {
  trace.finish(result.updates, result.parameters);
  result.recording_failure = trace.failure();
}

// With the source, the data and theta in the training's order.
TrainResult train_ordered(const Assembly& parts, const Order& order, TrainOptions options,
                          TrainCallbacks callbacks, const Checkpoint* from) {
  const GradientSource& source = parts.source;
  if (const std::size_t read = source.tables().size(); parts.tables.size() != read) {
    throw Error("tables must be the " + std::to_string(read) + " that the source reads, got " +
                std::to_string(parts.tables.size()));
  }
  const std::size_t dimension = source.dimension();
  Beginning begin(parts, options.workers);
  DisciplineContext& context = begin.context;
  const Rule& rule = context.rule;
  if (options.synchronisation) context.synchronisers = options.synchronisation->threads();
  const bool alone = !options.synchronisation && !options.leases;
  if (alone && parts.ordered && source.updates_in_place(rule) && parts.staleness.name == "none" &&
      (source.l2() == 0 ||  // an infinite rate times 0 would be NaN
       LazyShrink::suits(rule.largest_lr() * source.l2(),
                         RunSampler::run_of(options.batch_size)))) {
    context.sparse = {order.shape().dimension(parts.ordered->active()), order.shape(),
                      parts.ordered->mean_squares()};
  }
  if (from) {
    begin.resume(*from, order);
    options.from = from->position;
    options.initial_loss = from->initial_loss;
  }
  if (callbacks.checkpoint) {
    callbacks.checkpoint = [&order, dimension, hand_on = callbacks.checkpoint](Checkpoint taken) {
      order.to_model(taken, dimension);
      hand_on(std::move(taken));
    };
  }
  const auto discipline = make_discipline(parts.discipline, context);
  std::optional<LocalRows> rows;
  if (!parts.tables.empty()) {
    const std::size_t readers = std::min({options.workers, processors(), LocalRows::kReaders});
    rows.emplace(parts.tables, source.features_of_tables(), options.workers, readers,
                 discipline->lockstep(), options.from.updates);
    options.rows = &*rows;
  }
  options.stream = parts.stream;
  std::optional<TraceWriter> trace;
  if (const auto& recording = parts.recording) {
    if (discipline->sparse_runs()) {
      throw Error(
          "record is not for sparse rows that are updated in place; choose Leashed() or "
          "Synchronous() as the discipline, or leave record out");
    }
    const std::size_t factors =
        trace::factors(*begin.staleness, Updater(context).layout(), discipline->lockstep());
    trace.emplace(recording->path, recording->header, recording->start, options.workers, factors);
    options.trace = &*trace;
  }
  TrainResult result = train(source, parts.data, parts.validation ? &*parts.validation : nullptr,
                             *discipline, context, options, callbacks);
  if (trace) finish(*trace, result);
  return result;
}

// run(parts, order) with the parts in the training's order: sparse rows and their columns have one
// of their own, of which on a stream the intercepts come first and all else stays as it is.
template <class Run>
auto in_order(const Assembly& parts, const Run& run) {
  const auto* sparse = dynamic_cast<const SparseModel*>(&parts.source);
  if (!sparse) return run(parts, Order(nullptr, {}));

  const auto shared =
      parts.stream ? std::make_shared<const OrderedRows>(sparse->features()) : parts.ordered;
  const OrderedRows& rows = *shared;
  const auto source = sparse->for_ordered(rows);
  const ColumnShape& shape = sparse->shape();
  const std::vector<float> theta = rows.ordered(parts.theta, shape);
  std::optional<OrderedData> data;
  if (!parts.stream) data.emplace(shared, parts.data.targets);
  std::optional<OrderedData> validation;
  if (const auto& given = parts.validation) {
    validation.emplace(std::make_shared<const OrderedRows>(given->sparse, given->rows, rows),
                       given->targets);
  }
  const Assembly ordered{*source,
                         theta.data(),
                         data ? data->view() : parts.data,
                         validation ? std::optional(validation->view()) : std::nullopt,
                         shared,
                         parts.discipline,
                         parts.rule,
                         parts.staleness,
                         {},
                         parts.recording,
                         parts.stream};
  return run(ordered, Order(&rows, shape));
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

ModeTrainResult train_mode(const Assembly& parts, ModeTrainOptions options,
                           const TrainCallbacks& callbacks) {
  const Beginning begin(parts, options.workers);
  const modes::ServerPolicy machine = modes::make_server_policy(parts.discipline);
  options.tables = parts.tables;
  std::optional<TraceWriter> trace;
  std::optional<ModeRecorder> recorder;
  if (const auto& recording = parts.recording) {
    trace.emplace(recording->path, recording->header, recording->start, 1, 0);
    options.listener = &recorder.emplace(*trace);
  }
  ModeTrainResult result =
      train_mode(parts.source, parts.data, parts.validation ? &*parts.validation : nullptr, machine,
                 begin.context, options, callbacks);
  if (trace) finish(*trace, result.training);
  return result;
}

Replayed replay(const Assembly& parts, const Trace& trace, const ReplayOptions& options,
                const Checkpoint* from) {
  return in_order(parts, [&](const Assembly& ordered, const Order& order) {
    Beginning begin(ordered, options.workers);
    if (from) begin.resume(*from, order);
    const bool lockstep = make_discipline(parts.discipline, begin.context)->lockstep();
    Replayed result = replay(ordered.source, ordered.data, begin.context, lockstep, trace, options);
    for (std::vector<float>* vector : {&result.parameters, &result.before, &result.gradient}) {
      if (!vector->empty()) order.to_model(*vector);
    }
    return result;
  });
}

Replayed replay_mode(const Assembly& parts, const Trace& trace, const ReplayOptions& options) {
  Beginning begin(parts, options.workers);
  begin.context.readers += 2;
  return replay(parts.source, parts.data, modes::make_server_policy(parts.discipline),
                begin.context, trace, options);
}

}  // namespace leashed
