#include "leashed/graph/blocks/activation.h"

namespace leashed {

void plan_sigmoid_node(const Node&, GraphPlanner& graph) {
  plan_activation_node(&ActivationKernels::sigmoid, graph);
}

}  // namespace leashed
