// The dense features of an example.
#include "leashed/graph/graph_planner.h"
#include "leashed/model/gather.h"

namespace leashed {
namespace {

class InputBlock final : public Block {
 public:
  explicit InputBlock(const Window& out) : out_(out) {}

  void forward(const MicroBatch& step) override {
    gather(step.batch.rows + step.first, step.count, out_.width, out_.values, out_.stride);
  }
  void backward(const MicroBatch&, float*, bool) override {}

 private:
  const Window out_;
};

class InputPlan final : public BlockPlan {
 public:
  std::unique_ptr<Block> make(const Ports& ports) const override {
    return std::make_unique<InputBlock>(ports.output);
  }
};

}  // namespace

void plan_input_node(const Node&, GraphPlanner& graph) {
  graph.takes(0, 0);
  if (graph.plan().features > 0) graph.fail("there is an input already; a graph has one at most");
  graph.plan().features = graph.values(graph.size("features", 1));
  graph.becomes(std::make_unique<InputPlan>(), graph.plan().features, false);
}

}  // namespace leashed
