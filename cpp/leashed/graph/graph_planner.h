// What a node sees of the graph that it becomes part of.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "leashed/graph/graph_plan.h"

namespace leashed {

// Adds one node after another to a plan.
class GraphPlanner {
 public:
  GraphPlanner(GraphPlan& plan, const std::vector<Node>& nodes) : plan_(plan), nodes_(nodes) {}

  void add(std::size_t index);

  // What follows is for nodes.
  std::size_t index() const { return index_; }
  GraphPlan& plan() { return plan_; }
  // Throws Error, naming the node by its index.
  [[noreturn]] void fail(const std::string& why) const;
  // Fails unless the node reads so many others.
  void takes(std::size_t least, std::size_t most) const;
  std::size_t inputs() const { return node().inputs.size(); }
  std::size_t width(std::size_t input) const { return value(input).width; }
  // The width of all inputs; fails where they differ.
  std::size_t common_width() const;
  // That an input is; fails where it is none.
  const Sequence& sequence(std::size_t input) const;
  // Whether the gradient with respect to an input is needed.
  bool needs(std::size_t input) const { return value(input).needs_gradient; }
  // One of the node's sizes, from `least` to 2^31 − 1.
  std::size_t size(const char* name, std::size_t least) const;
  // The same of a number that is called so.
  std::size_t whole(const char* name, double number, std::size_t least) const;
  // n, unless no memory could hold so many values.
  std::size_t values(std::size_t n) const;

  // Multiply-adds of the forward pass, and how often the backward pass does the same.
  void count(double multiply_adds, int times_back);
  // The offset in theta of a parameter of that name and shape.
  std::size_t parameter(const char* name, std::vector<std::size_t> shape, std::size_t fan_in,
                        std::size_t fan_out);
  // The offset among the graph's statistics of one of that name; `least` as StatisticBlock has it.
  std::size_t statistic(const char* name, std::size_t size, float least);
  // The block of that kind that the node's one input comes from, if nothing else reads it; else
  // null.
  template <class Kind>
  Kind* extendable() {
    if (value(0).readers > 1) return nullptr;
    for (GraphPlan::PlannedBlock& block : plan_.blocks) {
      if (block.output == node().inputs[0]) return dynamic_cast<Kind*>(block.plan.get());
    }
    return nullptr;
  }
  // The node becomes a block, or part of the one that its input comes from. `learns`: whether the
  // block has something of its own that a gradient is needed for.
  void becomes(std::unique_ptr<BlockPlan> block, std::size_t width, bool learns);
  void extends(std::size_t width);
  // What it gives is a sequence.
  void gives(const Sequence& sequence) { plan_.values[index_].sequence = sequence; }

 private:
  const Node& node() const { return nodes_[index_]; }
  const GraphPlan::Value& value(std::size_t input) const {
    return plan_.values[node().inputs[input]];
  }
  void write(std::size_t width, bool learns);

  GraphPlan& plan_;
  const std::vector<Node>& nodes_;
  std::size_t index_ = 0;
};

}  // namespace leashed
