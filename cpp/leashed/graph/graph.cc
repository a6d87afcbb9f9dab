#include "leashed/graph/graph.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "leashed/base/aligned.h"
#include "leashed/graph/graph_layout.h"
#include "leashed/model/gather.h"
#include "leashed/model/head_pass.h"
#include "leashed/model/micro_batches.h"
#include "leashed/model/penalty.h"
#include "leashed/model/row_stride.h"

namespace leashed {

struct Graph::Plan : GraphPlan {
  Plan(const std::vector<Node>& nodes, std::vector<TableShape> shapes, Isa level,
       std::string_view last, double penalty)
      : GraphPlan(nodes, std::move(shapes)),
        layout(*this),
        isa(level),
        judge(find_loss(last, outputs, level)),
        l2(penalty) {}

  const GraphLayout layout;
  const Isa isa;
  const Loss& judge;
  const double l2;
};

namespace {

// One thread's blocks, and the memory between them, for micro-batches of at most so many rows.
struct Blocks {
  Blocks(const GraphPlan& plan, const GraphLayout& layout, const Loss& loss, Isa isa,
         std::size_t most)
      : max_rows(most), head(loss, plan.outputs, most) {
    for (const std::size_t width : layout.widths) {
      values.emplace_back(max_rows * row_stride(width));
      gradients.emplace_back(max_rows * row_stride(width));
    }
    const std::size_t last = plan.values.size() - 1;
    const auto window = [&](std::size_t v) -> Window {
      const auto [buffer, column] = layout.places[v];
      // The head writes the gradient with which the way back begins.
      float* d = buffer == layout.places[last].buffer ? head.residuals() : gradients[buffer].data();
      return {values[buffer].data() + column, d + column, row_stride(layout.widths[buffer]),
              plan.values[v].width};
    };
    // Rows that only one block reads, which can do so itself, by their values.
    std::vector<std::optional<TableFeature>> rows(plan.values.size());
    for (const auto& block : plan.blocks) {
      if (plan.values[block.output].readers == 1) rows[block.output] = block.plan->rows();
    }
    for (const auto& block : plan.blocks) {
      if (block.plan->reads_rows()) continue;
      for (const std::size_t v : block.inputs) rows[v].reset();
    }
    for (std::size_t b = 0; b < plan.blocks.size(); ++b) {
      const auto& block = plan.blocks[b];
      Ports ports{{}, window(block.output), rows[block.output].has_value(), isa, max_rows};
      for (std::size_t i = 0; i < block.inputs.size(); ++i) {
        const std::size_t v = block.inputs[i];
        ports.inputs.push_back(
            {window(v), layout.adds[b][i] != 0, plan.values[v].needs_gradient, rows[v]});
      }
      blocks.push_back(block.plan->make(ports));
    }
    outputs = window(last).values;
  }

  void forward(const MicroBatch& step) {
    for (const auto& block : blocks) block->forward(step);
  }

  const std::size_t max_rows;
  std::vector<AlignedArray<float>> values, gradients;
  HeadPass head;
  std::vector<std::unique_ptr<Block>> blocks;
  const float* outputs;
};

struct GraphWorkspace final : Workspace {
  std::unique_ptr<Blocks> blocks;
};

// Those of a workspace, for so many rows at least.
template <class Plan>
Blocks& blocks_of(const Plan& plan, Workspace& workspace, std::size_t rows) {
  std::unique_ptr<Blocks>& own = static_cast<GraphWorkspace&>(workspace).blocks;
  if (!own || own->max_rows < rows) {
    own.reset();
    own = std::make_unique<Blocks>(plan, plan.layout, plan.judge, plan.isa, rows);
  }
  return *own;
}

}  // namespace

Graph::Graph(const std::vector<Node>& nodes, std::vector<TableShape> tables, Isa isa,
             std::string_view loss, double l2)
    : plan_(std::make_unique<Plan>(nodes, std::move(tables), isa, loss, l2)) {
  describe({.dimension = plan_->dimension,
            .features = plan_->features,
            .classes = plan_->judge.classes(plan_->outputs),
            .values = plan_->judge.values(plan_->outputs),
            .gives_logits = leashed::gives_logits(plan_->judge, plan_->outputs),
            .block_ends = ends_of(plan_->parameters, plan_->dimension),
            .tables = plan_->tables,
            .features_of_tables = plan_->features_of_tables,
            .statistics = plan_->statistics});
}
Graph::~Graph() = default;

std::size_t Graph::outputs() const { return plan_->outputs; }
const std::vector<ParameterBlock>& Graph::parameters() const { return plan_->parameters; }
double Graph::flops_per_example() const { return plan_->flops; }

std::unique_ptr<Workspace> Graph::make_workspace() const {
  auto workspace = std::make_unique<GraphWorkspace>();
  blocks_of(*plan_, *workspace, kMicroBatch);
  return workspace;
}

float Graph::gradient(const float* theta, const BatchView& batch, float* gradient,
                      Workspace& workspace, const std::atomic<bool>& cancel) const {
  // What a batch comes to is known when all of it is there.
  const std::size_t together =
      plan_->statistics.empty() ? kMicroBatch : std::max(kMicroBatch, batch.size);
  Blocks& own = blocks_of(*plan_, workspace, together);
  const float scale = 1.0f / static_cast<float>(batch.size);
  for (const auto& block : own.blocks) block->prepare_backward(theta);

  double loss = 0;
  const auto work = [&](std::size_t first, std::size_t count) {
    if (cancel.load(std::memory_order_relaxed)) return false;
    RowsAhead ahead;
    if (plan_->features > 0) ahead = rows_after(batch, first + count, plan_->features);
    const MicroBatch step = {theta, batch, first, count, ahead, true};
    own.forward(step);
    if (batch.logits) own.head.logits(own.outputs, count, batch.logits + first * plan_->outputs);
    loss += own.head.loss(own.outputs, count, batch.targets.from(first), scale);
    for (std::size_t b = own.blocks.size(); b-- > 0;) {
      own.blocks[b]->backward(step, gradient, first > 0);
    }
    return true;
  };
  for_each_micro_batch(batch.size, 1, work, together);
  const double penalty =
      plan_->l2 > 0 ? penalise(plan_->l2, plan_->parameters, theta, gradient) : 0;
  return static_cast<float>(loss / static_cast<double>(batch.size) + penalty);
}

Evaluation Graph::evaluate(const float* theta, const BatchView& batch, Workspace& workspace) const {
  Blocks& own = blocks_of(*plan_, workspace, kMicroBatch);
  RowsAhead none;
  Evaluation sums;
  sums.rows = batch.size;
  for_each_micro_batch(batch.size, 1, [&](std::size_t first, std::size_t count) {
    const Targets targets = batch.targets.from(first);
    own.forward({theta, batch, first, count, none});
    sums.loss_sum += own.head.loss(own.outputs, count, targets, 1);
    sums.correct += own.head.correct(own.outputs, count, targets);
    if (batch.logits) own.head.logits(own.outputs, count, batch.logits + first * plan_->outputs);
    return true;
  });
  return sums;
}

void Graph::predict(const float* theta, const BatchView& batch, float* predictions,
                    Workspace& workspace) const {
  Blocks& own = blocks_of(*plan_, workspace, kMicroBatch);
  RowsAhead none;
  for_each_micro_batch(batch.size, 1, [&](std::size_t first, std::size_t count) {
    own.forward({theta, batch, first, count, none});
    own.head.predict(own.outputs, count, predictions + first * plan_->outputs);
    return true;
  });
}

}  // namespace leashed
