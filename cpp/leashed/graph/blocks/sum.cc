// The sum of its inputs, element by element.
#include "leashed/graph/graph_planner.h"
#include "leashed/kernels/elementwise.h"

namespace leashed {
namespace {

class SumBlock final : public Block {
 public:
  explicit SumBlock(const Ports& ports)
      : in_(ports.inputs), out_(ports.output), kernels_(elementwise_kernels(ports.isa)) {}

  void forward(const MicroBatch& step) override {
    bool add = false;
    for (const InputWindow& in : in_) {
      kernels_.copy(in.values, in.stride, out_.values, out_.stride, step.count, in.width, add);
      add = true;
    }
  }
  void backward(const MicroBatch& step, float*, bool) override {
    for (const InputWindow& in : in_) {
      if (!in.needed) continue;
      kernels_.copy(out_.gradient, out_.stride, in.gradient, in.stride, step.count, in.width,
                    in.adds);
    }
  }

 private:
  const std::vector<InputWindow> in_;
  const Window out_;
  const ElementwiseKernels& kernels_;
};

}  // namespace

void plan_sum_node(const Node& node, GraphPlanner& graph) {
  graph.takes(1, node.inputs.size());
  graph.becomes(plan_of<SumBlock>(), graph.common_width(), false);
}

}  // namespace leashed
