// max(0, x); after a dense layer or a normalisation that nothing else reads, part of it.
#include "leashed/graph/blocks/chain.h"
#include "leashed/graph/blocks/norm.h"
#include "leashed/graph/graph_planner.h"
#include "leashed/kernels/activation.h"
#include "leashed/kernels/elementwise.h"

namespace leashed {
namespace {

class ReluBlock final : public Block {
 public:
  explicit ReluBlock(const Ports& ports)
      : in_(ports.inputs[0]),
        out_(ports.output),
        kernels_(activation_kernels(ports.isa)),
        elementwise_(elementwise_kernels(ports.isa)) {}

  void forward(const MicroBatch& step) override {
    elementwise_.copy(in_.values, in_.stride, out_.values, out_.stride, step.count, out_.width,
                      false);
    for (std::size_t row = 0; row < step.count; ++row) {
      kernels_.relu(out_.values + row * out_.stride, out_.width);
    }
  }

  void backward(const MicroBatch& step, float*, bool) override {
    if (!in_.needed) return;
    for (std::size_t row = 0; row < step.count; ++row) {
      const std::size_t at = row * out_.stride;
      kernels_.relu_backward(out_.values + at, out_.gradient + at, out_.width);
    }
    elementwise_.copy(out_.gradient, out_.stride, in_.gradient, in_.stride, step.count, out_.width,
                      in_.adds);
  }

 private:
  const InputWindow in_;
  const Window out_;
  const ActivationKernels& kernels_;
  const ElementwiseKernels& elementwise_;
};

}  // namespace

void plan_relu_node(const Node&, GraphPlanner& graph) {
  graph.takes(1, 1);
  const std::size_t width = graph.width(0);
  if (auto* chain = graph.extendable<ChainPlan>()) {
    chain->stages.back().relu = true;
    graph.extends(width);
  } else if (auto* norm = graph.extendable<NormPlan>()) {
    norm->relu = true;
    graph.extends(width);
  } else {
    graph.becomes(plan_of<ReluBlock>(), width, false);
  }
}

}  // namespace leashed
