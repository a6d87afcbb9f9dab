// x W + b. Parameters: W [inputs][outputs], then b [outputs], whose gradient is 0 where the bias is
// not trained. Those that follow each other, with their ReLUs, are one block.
#include "leashed/graph/blocks/chain.h"
#include "leashed/graph/graph_planner.h"

namespace leashed {
namespace {

class ChainBlock final : public Block {
 public:
  ChainBlock(const ChainPlan& plan, const Ports& ports)
      : in_(ports.inputs[0]),
        out_(ports.output),
        chain_(plan.stages, in_.needed, ports.isa, ports.max_rows) {}

  void forward(const MicroBatch& step) override {
    chain_.forward(step.theta, step.count, in_.values, in_.stride, out_.values, out_.stride,
                   step.ahead);
  }
  void prepare_backward(const float* theta) override { chain_.prepare_backward(theta); }
  void backward(const MicroBatch& step, float* gradient, bool accumulate) override {
    chain_.backward({.rows = step.count,
                     .in = in_.values,
                     .in_stride = in_.stride,
                     .out = out_.values,
                     .out_stride = out_.stride,
                     .d_out = out_.gradient,
                     .d_in = in_.gradient,
                     .adds_d_in = in_.adds,
                     .gradient = gradient,
                     .accumulate = accumulate},
                    step.ahead);
  }

 private:
  const InputWindow in_;
  const Window out_;
  DenseChain chain_;
};

}  // namespace

std::unique_ptr<Block> ChainPlan::make(const Ports& ports) const {
  return std::make_unique<ChainBlock>(*this, ports);
}

void plan_dense_node(const Node& node, GraphPlanner& graph) {
  graph.takes(1, 1);
  const std::size_t inputs = graph.width(0), outputs = graph.values(graph.size("outputs", 1));
  graph.count(static_cast<double>(inputs) * static_cast<double>(outputs), graph.needs(0) ? 2 : 1);
  DenseStage stage{};
  stage.inputs = inputs;
  stage.outputs = outputs;
  stage.weight = graph.parameter("weight", {inputs, outputs}, inputs, outputs);
  stage.bias = graph.parameter("bias", {outputs}, inputs, outputs);
  stage.trains_bias = node.kind.value("bias", 1) != 0;
  if (auto* chain = graph.extendable<ChainPlan>()) {
    chain->stages.push_back(stage);
    graph.extends(outputs);
  } else {
    auto own = std::make_unique<ChainPlan>();
    own->stages.push_back(stage);
    graph.becomes(std::move(own), outputs, true);
  }
}

}  // namespace leashed
