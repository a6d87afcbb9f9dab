// What a graph of blocks computes: its nodes made into blocks, in an order in which each comes
// after those that it reads.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "leashed/base/choice.h"
#include "leashed/base/isa.h"
#include "leashed/graph/block.h"
#include "leashed/model/gradient_source.h"
#include "leashed/model/layer.h"

namespace leashed {

// What a node is, by name with its sizes, and the indices of the nodes before it that it reads.
struct Node {
  Choice kind;
  std::vector<std::size_t> inputs;
};

struct GraphPlan {
  // Throws Error, naming the node by its index, where the nodes do not fit each other. The last
  // node is the model's output.
  GraphPlan(const std::vector<Node>& nodes, std::vector<TableShape> tables);

  // Values are known by the node that they come from; within a block that is made of several nodes
  // there are none.
  struct PlannedBlock {
    std::unique_ptr<BlockPlan> plan;
    std::vector<std::size_t> inputs;
    std::size_t output;
  };
  struct Value {
    std::size_t width = 0;
    bool needs_gradient = false;
    std::size_t readers = 0;  // nodes that read it, as often as they do
    std::optional<Sequence> sequence = {};
  };
  std::vector<PlannedBlock> blocks;
  std::vector<Value> values;

  std::vector<TableShape> tables;
  std::vector<std::size_t> features_of_tables;
  std::size_t features = 0;  // dense ones, of a row
  std::size_t outputs = 0;
  std::size_t dimension = 0;
  std::vector<ParameterBlock> parameters;
  std::vector<StatisticBlock> statistics;
  double flops = 0;  // of one example, forward and backward
};

}  // namespace leashed
