// The second-order term of a factorisation machine, ½ Σ_k ((Σⱼ vⱼₖ)² − Σⱼ vⱼₖ²), one value (Rendle,
// 2010, lemma 3.1).
#include "leashed/graph/blocks/vectors.h"
#include "leashed/graph/graph_planner.h"

namespace leashed {
namespace {

class FmBlock final : public Block {
 public:
  explicit FmBlock(const Ports& ports)
      : in_(ports), out_(ports.output), kernels_(interaction_kernels(ports.isa)) {}

  void forward(const MicroBatch& step) override {
    kernels_.fm(in_.values(step), step.count, out_.values, out_.stride);
  }
  void backward(const MicroBatch& step, float*, bool) override {
    kernels_.fm_backward(in_.values(step), step.count, out_.gradient, out_.stride, in_.gradients());
  }

 private:
  VectorInputs in_;
  const Window out_;
  const InteractionKernels& kernels_;
};

}  // namespace

void plan_fm_node(const Node& node, GraphPlanner& graph) {
  graph.takes(2, node.inputs.size());
  const auto values = static_cast<double>(graph.common_width() * graph.inputs());
  graph.count(2 * values, 1);
  graph.becomes(plan_of<FmBlock>(), 1, false);
}

}  // namespace leashed
