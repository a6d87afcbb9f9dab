// The dense features of an example.
#include "leashed/graph/graph_planner.h"
#include "leashed/model/gather.h"

namespace leashed {
namespace {

class InputBlock final : public Block {
 public:
  explicit InputBlock(const Ports& ports) : out_(ports.output) {}

  void forward(const MicroBatch& step) override {
    gather(step.batch.rows + step.first, step.count, out_.width, out_.values, out_.stride);
  }
  void backward(const MicroBatch&, float*, bool) override {}

 private:
  const Window out_;
};

}  // namespace

void plan_input_node(const Node&, GraphPlanner& graph) {
  graph.takes(0, 0);
  if (graph.plan().features > 0) graph.fail("there is an input already; a graph has one at most");
  graph.plan().features = graph.values(graph.size("features", 1));
  graph.becomes(plan_of<InputBlock>(), graph.plan().features, false);
}

}  // namespace leashed
