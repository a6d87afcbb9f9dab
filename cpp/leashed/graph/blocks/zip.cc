// Sequences side by side at each step. It is as long as the first of them.
#include "leashed/base/extent.h"
#include "leashed/graph/graph_planner.h"
#include "leashed/kernels/elementwise.h"

namespace leashed {
namespace {

class ZipBlock final : public Block {
 public:
  ZipBlock(std::size_t length, const Ports& ports)
      : length_(length),
        in_(ports.inputs),
        out_(ports.output),
        kernels_(elementwise_kernels(ports.isa)) {}

  void forward(const MicroBatch& step) override {
    const std::size_t dim = out_.width / length_;
    for (std::size_t row = 0; row < step.count; ++row) {
      float* to = out_.values + row * out_.stride;
      for (const InputWindow& in : in_) {
        const std::size_t own = in.width / length_;
        kernels_.copy(in.values + row * in.stride, own, to, dim, length_, own, false);
        to += own;
      }
    }
  }

  void backward(const MicroBatch& step, float*, bool) override {
    const std::size_t dim = out_.width / length_;
    for (std::size_t row = 0; row < step.count; ++row) {
      const float* from = out_.gradient + row * out_.stride;
      for (const InputWindow& in : in_) {
        const std::size_t own = in.width / length_;
        if (in.needed) {
          kernels_.copy(from, dim, in.gradient + row * in.stride, own, length_, own, in.adds);
        }
        from += own;
      }
    }
  }

 private:
  const std::size_t length_;
  const std::vector<InputWindow> in_;
  const Window out_;
  const ElementwiseKernels& kernels_;
};

}  // namespace

void plan_zip_node(const Node& node, GraphPlanner& graph) {
  graph.takes(1, node.inputs.size());
  Sequence sequence = graph.sequence(0);
  sequence.dim = 0;
  for (std::size_t i = 0; i < graph.inputs(); ++i) {
    const Sequence& own = graph.sequence(i);
    if (own.length != sequence.length) {
      graph.fail("its inputs must have one length, but they have " +
                 std::to_string(sequence.length) + " and " + std::to_string(own.length));
    }
    sequence.dim = graph.values(sequence.dim + own.dim);
  }
  const std::size_t width = graph.values(extent({sequence.length, sequence.dim}));
  graph.becomes(plan_of<ZipBlock>(sequence.length), width, false);
  graph.gives(sequence);
}

}  // namespace leashed
