// The interaction of DLRM: the dot products of all pairs of its inputs, in the order (0, 1), (0,
// 2), (1, 2), (0, 3), … (Naumov et al., 2019).
#include <algorithm>

#include "leashed/base/aligned.h"
#include "leashed/graph/blocks/vectors.h"
#include "leashed/graph/graph_planner.h"

namespace leashed {
namespace {

class DotBlock final : public Block {
 public:
  explicit DotBlock(const Ports& ports)
      : in_(ports),
        out_(ports.output),
        n_(ports.inputs.size()),
        dim_(ports.inputs.front().width),
        kernels_(interaction_kernels(ports.isa)),
        kept_(kernels_.dot_kept(n_, dim_, ports.max_rows)),
        scratch_(kernels_.dot_scratch(n_, dim_)) {
    std::fill_n(kept_.data(), kept_.size(), 0.0f);
  }

  void forward(const MicroBatch& step) override {
    kernels_.dot_racy(in_.values(step), step.count, out_.values, out_.stride, kept_.data(),
                      scratch_.data());
  }
  void backward(const MicroBatch& step, float*, bool) override {
    kernels_.dot_backward(n_, dim_, kept_.data(), step.count, out_.gradient, out_.stride,
                          in_.gradients());
  }

 private:
  VectorInputs in_;
  const Window out_;
  const std::size_t n_, dim_;
  const InteractionKernels& kernels_;
  AlignedArray<float> kept_, scratch_;
};

struct DotPlan final : PlanOf<DotBlock> {
  bool reads_rows() const override { return true; }
};

}  // namespace

void plan_dot_node(const Node& node, GraphPlanner& graph) {
  graph.takes(2, node.inputs.size());
  const std::size_t n = graph.inputs(), pairs = graph.values(n * (n - 1) / 2);
  graph.count(static_cast<double>(pairs) * static_cast<double>(graph.common_width()), 2);
  graph.becomes(std::make_unique<DotPlan>(), pairs, false);
}

}  // namespace leashed
