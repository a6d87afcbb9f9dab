#include "leashed/graph/blocks/activation.h"

namespace leashed {

void plan_tanh_node(const Node&, GraphPlanner& graph) {
  plan_activation_node(&ActivationKernels::tanh, graph);
}

}  // namespace leashed
