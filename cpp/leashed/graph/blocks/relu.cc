// max(0, x); after a normalisation that nothing else reads, part of that.
#include "leashed/graph/blocks/activation.h"
#include "leashed/graph/blocks/norm.h"

namespace leashed {

void plan_relu_node(const Node&, GraphPlanner& graph) {
  graph.takes(1, 1);
  if (auto* norm = graph.extendable<NormPlan>()) {
    norm->relu = true;
    graph.extends(graph.width(0));
  } else {
    plan_activation_node(&ActivationKernels::relu, graph);
  }
}

}  // namespace leashed
