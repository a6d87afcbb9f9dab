// Its inputs side by side. What lies there already is left alone (graph_layout.h).
#include "leashed/graph/graph_planner.h"
#include "leashed/kernels/elementwise.h"

namespace leashed {
namespace {

class ConcatBlock final : public Block {
 public:
  explicit ConcatBlock(const Ports& ports)
      : out_(ports.output), kernels_(elementwise_kernels(ports.isa)) {
    std::size_t column = 0;
    for (const InputWindow& in : ports.inputs) {
      if (in.values != out_.values + column) elsewhere_.push_back({in, column});
      column += in.width;
    }
  }

  void forward(const MicroBatch& step) override {
    for (const auto& [in, column] : elsewhere_) {
      kernels_.copy(in.values, in.stride, out_.values + column, out_.stride, step.count, in.width,
                    false);
    }
  }

  void backward(const MicroBatch& step, float*, bool) override {
    for (const auto& [in, column] : elsewhere_) {
      if (!in.needed) continue;
      kernels_.copy(out_.gradient + column, out_.stride, in.gradient, in.stride, step.count,
                    in.width, in.adds);
    }
  }

 private:
  struct Elsewhere {
    InputWindow in;
    std::size_t column;
  };
  const Window out_;
  const ElementwiseKernels& kernels_;
  std::vector<Elsewhere> elsewhere_;
};

struct ConcatPlan final : PlanOf<ConcatBlock> {
  bool is_side_by_side() const override { return true; }
};

}  // namespace

void plan_concat_node(const Node& node, GraphPlanner& graph) {
  graph.takes(1, node.inputs.size());
  std::size_t width = 0;
  for (std::size_t i = 0; i < graph.inputs(); ++i) width = graph.values(width + graph.width(i));
  graph.becomes(std::make_unique<ConcatPlan>(), width, false);
}

}  // namespace leashed
