// Sparse rows are trained on with their columns, and with them theta, in another order
// (sparse/ordered_rows.h): what a training is made from in that order, and what comes of it in the
// model's own again.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "leashed/columns/sparse_model.h"
#include "leashed/training/assemble.h"

namespace leashed {

// Parameters in the model's order and in the one that a training has them in.
class Order {
 public:
  Order(const OrderedRows* rows, const ColumnShape& shape) : rows_(rows), shape_(shape) {}

  const ColumnShape& shape() const { return shape_; }
  // How much further back variables lie in the training's vector, round its end.
  std::size_t shift() const { return rows_ ? shape_.intercepts : 0; }

  void to_training(Checkpoint& checkpoint, std::size_t dimension) const {
    each(checkpoint, dimension,
         [this](const std::vector<float>& v) { return rows_->ordered(v.data(), shape_); });
  }
  void to_model(Checkpoint& checkpoint, std::size_t dimension) const {
    each(checkpoint, dimension,
         [this](const std::vector<float>& v) { return rows_->original(v, shape_); });
  }
  void to_model(std::vector<float>& parameters) const {
    if (rows_ && !parameters.empty()) parameters = rows_->original(parameters, shape_);
  }
  // Of several, one after another.
  void each_to_model(std::vector<float>& all, std::size_t dimension) const {
    if (rows_)
      reorder(all, dimension, [this](const auto& v) { return rows_->original(v, shape_); });
  }

 private:
  template <class F>
  void each(Checkpoint& checkpoint, std::size_t dimension, const F& reordered) const {
    if (!rows_) return;
    reorder(checkpoint.vectors, dimension, reordered);
    reorder(checkpoint.mode.vectors, dimension, reordered);
    if (!checkpoint.behind.empty()) checkpoint.behind = reordered(checkpoint.behind);
    // Of the variables: columns and intercepts.
    std::ranges::reverse(checkpoint.last_updates);
  }

  template <class F>
  static void reorder(std::vector<float>& all, std::size_t dimension, const F& reordered) {
    for (auto v = all.begin(); v != all.end(); v += static_cast<std::ptrdiff_t>(dimension)) {
      const std::vector<float> one(v, v + static_cast<std::ptrdiff_t>(dimension));
      std::ranges::copy(reordered(one), v);
    }
  }

  const OrderedRows* const rows_;
  const ColumnShape shape_;
};

// Sparse rows in the order of a training, with what they are to give.
struct OrderedData {
  OrderedData(std::shared_ptr<const OrderedRows> given, const Targets& targets)
      : rows(std::move(given)), width(targets.width) {
    if (targets.labels) labels = rows->shuffled(targets.labels);
    if (targets.values) values = rows->shuffled(targets.values, width);
    if (targets.weights) weights = rows->shuffled(targets.weights);
    if (targets.users) users = rows->shuffled(targets.users);
  }
  DatasetView view() const {
    Targets targets = labels.empty() ? Targets(values.data(), width) : Targets(labels.data());
    if (!weights.empty()) targets.weights = weights.data();
    if (!users.empty()) targets.users = users.data();
    return {nullptr, targets, rows->rows(), rows->features(), rows->view()};
  }

  std::shared_ptr<const OrderedRows> rows;
  const std::size_t width;
  std::vector<std::int32_t> labels;
  std::vector<float> values, weights;
  std::vector<std::uint64_t> users;
};

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
                         parts.rows,
                         parts.recording,
                         parts.stream,
                         parts.observers};
  return run(ordered, Order(&rows, shape));
}

}  // namespace leashed
