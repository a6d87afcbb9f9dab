#include "leashed/graph/blocks/activation.h"

#include "leashed/graph/blocks/chain.h"
#include "leashed/kernels/elementwise.h"

namespace leashed {
namespace {

class ActivationBlock final : public Block {
 public:
  ActivationBlock(AnyActivation activation, const Ports& ports)
      : in_(ports.inputs[0]),
        out_(ports.output),
        activation_(activation_kernels(ports.isa).*activation),
        elementwise_(elementwise_kernels(ports.isa)) {}

  void forward(const MicroBatch& step) override {
    elementwise_.copy(in_.values, in_.stride, out_.values, out_.stride, step.count, out_.width,
                      false);
    for (std::size_t row = 0; row < step.count; ++row) {
      activation_.forward(out_.values + row * out_.stride, out_.width);
    }
  }

  void backward(const MicroBatch& step, float*, bool) override {
    if (!in_.needed) return;
    for (std::size_t row = 0; row < step.count; ++row) {
      const std::size_t at = row * out_.stride;
      activation_.backward(out_.values + at, out_.gradient + at, out_.width);
    }
    elementwise_.copy(out_.gradient, out_.stride, in_.gradient, in_.stride, step.count, out_.width,
                      in_.adds);
  }

 private:
  const InputWindow in_;
  const Window out_;
  const Activation& activation_;
  const ElementwiseKernels& elementwise_;
};

}  // namespace

void plan_activation_node(AnyActivation activation, GraphPlanner& graph) {
  graph.takes(1, 1);
  const std::size_t width = graph.width(0);
  auto* chain = graph.extendable<ChainPlan>();
  if (chain && !chain->stages.back().activation) {
    chain->stages.back().activation = activation;
    graph.extends(width);
  } else {
    graph.becomes(plan_of<ActivationBlock>(activation), width, false);
  }
}

}  // namespace leashed
