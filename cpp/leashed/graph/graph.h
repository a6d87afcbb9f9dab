// A model as a graph of blocks over dense features and rows of tables, then a loss of losses/. See
// blocks/ for the nodes there are, graph_layout.h for how they share memory.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "leashed/base/isa.h"
#include "leashed/graph/graph_plan.h"
#include "leashed/model/gradient_source.h"

namespace leashed {

class Graph final : public GradientSource {
 public:
  // Throws Error, naming the node by its index, where the nodes do not fit each other. The penalty
  // l2/2 |w|² is added to the loss over every parameter in theta that is no bias; rows of tables
  // have none.
  Graph(const std::vector<Node>& nodes, std::vector<TableShape> tables, Isa isa = default_isa(),
        std::string_view loss = "log_loss", double l2 = 0);
  ~Graph() override;

  std::size_t outputs() const;
  const std::vector<ParameterBlock>& parameters() const;
  // Floating-point operations of one example's forward and backward pass (2 per multiply-add).
  double flops_per_example() const;

  std::unique_ptr<Workspace> make_workspace() const override;
  // A row's gradient is added up in the order of a feature's entries; where features share a table,
  // those of one micro-batch come before those of the next. Which order the features have within
  // one depends on the graph and the batch alone: the same bits wherever the batch ran. Where there
  // are statistics the whole batch is one micro-batch.
  float gradient(const float* theta, const BatchView& batch, float* gradient, Workspace& workspace,
                 const std::atomic<bool>& cancel) const override;
  Evaluation evaluate(const float* theta, const BatchView& batch,
                      Workspace& workspace) const override;
  // What a prediction is (loss.h) of the batch's examples, row-major [size][outputs].
  void predict(const float* theta, const BatchView& batch, float* predictions,
               Workspace& workspace) const;

 private:
  struct Plan;
  std::unique_ptr<const Plan> plan_;
};

}  // namespace leashed
