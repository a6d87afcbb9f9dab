// The product of its two inputs, element by element.
#include "leashed/graph/graph_planner.h"
#include "leashed/kernels/elementwise.h"

namespace leashed {
namespace {

class ProductBlock final : public Block {
 public:
  explicit ProductBlock(const Ports& ports)
      : a_(ports.inputs[0]),
        b_(ports.inputs[1]),
        out_(ports.output),
        kernels_(elementwise_kernels(ports.isa)) {}

  void forward(const MicroBatch& step) override {
    kernels_.multiply(a_.values, a_.stride, b_.values, b_.stride, out_.values, out_.stride,
                      step.count, out_.width, false);
  }
  void backward(const MicroBatch& step, float*, bool) override {
    const auto back = [&](const InputWindow& in, const InputWindow& other) {
      if (!in.needed) return;
      kernels_.multiply(out_.gradient, out_.stride, other.values, other.stride, in.gradient,
                        in.stride, step.count, out_.width, in.adds);
    };
    back(a_, b_);
    back(b_, a_);
  }

 private:
  const InputWindow a_, b_;
  const Window out_;
  const ElementwiseKernels& kernels_;
};

}  // namespace

void plan_product_node(const Node&, GraphPlanner& graph) {
  graph.takes(2, 2);
  graph.becomes(plan_of<ProductBlock>(), graph.common_width(), false);
}

}  // namespace leashed
