#include "leashed/engine/assemble.h"

#include <algorithm>

#include "leashed/base/error.h"
#include "leashed/data/run_batches.h"
#include "leashed/discipline/registry.h"
#include "leashed/discipline/updater.h"
#include "leashed/model/sparse_model.h"
#include "leashed/sparse/lazy_shrink.h"
#include "leashed/table/local_rows.h"
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
  }
  DatasetView view() const {
    Targets targets = labels.empty() ? Targets(values.data()) : Targets(labels.data());
    if (!weights.empty()) targets.weights = weights.data();
    return {nullptr, targets, rows->rows(), rows->features(), rows->view()};
  }

  std::shared_ptr<const OrderedRows> rows;
  std::vector<std::int32_t> labels;
  std::vector<float> values, weights;
};

// With the source, the data and theta in the training's order.
TrainResult train_ordered(const Assembly& parts, const Order& order, TrainOptions options,
                          TrainCallbacks callbacks, const Checkpoint* from) {
  const GradientSource& source = parts.source;
  const std::size_t dimension = source.dimension();
  const auto rule = make_rule(parts.rule, options.workers);
  const auto staleness = make_staleness(parts.staleness);
  DisciplineContext context{parts.theta, dimension,  options.workers,    1,
                            *rule,       *staleness, source.block_ends()};
  if (options.synchronisation) context.synchronisers = options.synchronisation->threads();
  const bool alone = !options.synchronisation && !options.leases;
  if (alone && parts.ordered && source.updates_in_place(*rule) && parts.staleness.name == "none" &&
      (source.l2() == 0 ||  // an infinite rate times 0 would be NaN
       LazyShrink::suits(rule->largest_lr() * source.l2(),
                         RunBatches(parts.data, options.batch_size, options.seed).run()))) {
    context.sparse = {order.shape().dimension(parts.ordered->active()), order.shape(),
                      parts.ordered->mean_squares()};
  }
  std::optional<Checkpoint> begin;
  std::optional<Resumed> resumed;
  if (from) {
    const Layout layout = Updater(context).layout();
    require_fit(*from, layout, context.sparse);
    begin = *from;
    order.to_training(*begin, dimension);
    resumed.emplace(*begin, layout, *staleness, context);
    options.from = begin->position;
    options.initial_loss = begin->initial_loss;
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
  return train(source, parts.data, parts.validation ? &*parts.validation : nullptr, *discipline,
               context, options, callbacks);
}

}  // namespace

TrainResult train(const Assembly& parts, const TrainOptions& options,
                  const TrainCallbacks& callbacks, const Checkpoint* from) {
  const auto* sparse = dynamic_cast<const SparseModel*>(&parts.source);
  if (!sparse) return train_ordered(parts, {nullptr, {}}, options, callbacks, from);

  const OrderedRows& rows = *parts.ordered;
  const auto source = sparse->for_ordered(rows);
  const ColumnShape& shape = sparse->shape();
  const std::vector<float> theta = rows.ordered(parts.theta, shape);
  const OrderedData data(parts.ordered, parts.data.targets);
  std::optional<OrderedData> validation;
  if (const auto& given = parts.validation) {
    validation.emplace(std::make_shared<const OrderedRows>(given->sparse, given->rows, rows),
                       given->targets);
  }
  const Assembly ordered{
      *source,       theta.data(),
      data.view(),   validation ? std::optional(validation->view()) : std::nullopt,
      parts.ordered, parts.discipline,
      parts.rule,    parts.staleness};
  TrainResult result = train_ordered(ordered, {&rows, shape}, options, callbacks, from);
  result.parameters = rows.original(result.parameters, shape);
  return result;
}

}  // namespace leashed
