// One step of a graph of blocks (graph.h), forward and backward.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "leashed/base/isa.h"
#include "leashed/data/batch_view.h"
#include "leashed/kernels/dense.h"

namespace leashed {

// Where the values between two blocks lie, and their gradient: [rows][width], both with this row
// stride.
struct Window {
  float* values;
  float* gradient;
  std::size_t stride, width;
};

// A feature that is ids, and the table of its rows.
struct TableFeature {
  std::size_t feature, table;

  // Whether each of a batch's examples has one row, as it is.
  bool is_row(const BatchView& batch) const {
    return !batch.columns[feature].offsets && !batch.columns[feature].weights;
  }
};

// As a block reads it: it writes the whole gradient, or adds to the one that others have written.
// Which of both is fixed when the graph is laid out (graph_layout.h).
struct InputWindow : Window {
  bool adds;
  bool needed;  // the gradient; else there is nobody to read it
  // Where nobody else reads it and examples have one row each, neither values nor gradient are
  // here: the block reads the rows themselves, and adds to their gradients.
  std::optional<TableFeature> rows = {};
};

struct Ports {
  std::vector<InputWindow> inputs;
  Window output;
  bool is_left_to_reader;  // where its examples have one row each
  Isa isa;
  std::size_t max_rows;
};

// A value that is a sequence: an example has as many steps of `dim` floats as ids of a feature, at
// most `length`, and zeros behind them.
struct Sequence {
  std::size_t feature, length, dim;

  std::size_t steps(const BatchView& batch, std::size_t example) const {
    const IdColumn& column = batch.columns[feature];
    return std::min(column.end(example) - column.begin(example), length);
  }
};

// A micro-batch: examples [first, first + count) of a batch.
struct MicroBatch {
  const float* theta;
  const BatchView& batch;
  std::size_t first, count;
  RowsAhead& ahead;     // to fetch beside the work
  bool trains = false;  // a gradient is computed, not a value
};

// One thread's, with the memory it needs between forward and backward.
class Block {
 public:
  virtual ~Block() = default;

  // Inputs' values → the output's.
  virtual void forward(const MicroBatch&) = 0;
  // To be called before the first backward() at theta.
  virtual void prepare_backward(const float* /*theta*/) {}
  // After forward() of the same examples, and after whoever reads the output: the gradient of the
  // output (which may be written to) → those of the inputs. That of theta is written to `gradient`,
  // or added to it.
  virtual void backward(const MicroBatch&, float* gradient, bool accumulate) = 0;
};

// What a block computes, fixed when a graph is planned.
class BlockPlan {
 public:
  virtual ~BlockPlan() = default;

  virtual std::unique_ptr<Block> make(const Ports&) const = 0;
  // Whether its output is its inputs side by side, so that these can lie where it does.
  virtual bool is_side_by_side() const { return false; }
  // The feature whose rows it gives as they are, of examples that have one each.
  virtual std::optional<TableFeature> rows() const { return {}; }
  // Whether it can read such rows itself.
  virtual bool reads_rows() const { return false; }
};

// That of a block which is made from what it is planned with, and its ports.
template <class Made, class... Own>
class PlanOf : public BlockPlan {
 public:
  explicit PlanOf(Own... own) : own_(std::move(own)...) {}
  std::unique_ptr<Block> make(const Ports& ports) const override {
    return std::apply([&](const Own&... own) { return std::make_unique<Made>(own..., ports); },
                      own_);
  }

 private:
  const std::tuple<Own...> own_;
};

template <class Made, class... Own>
std::unique_ptr<BlockPlan> plan_of(Own... own) {
  return std::make_unique<PlanOf<Made, Own...>>(std::move(own)...);
}

}  // namespace leashed
