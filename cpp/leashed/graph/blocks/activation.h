// Activations of graphs: behind a dense layer that nothing else reads part of it, elsewhere a block
// of their own.
#pragma once

#include "leashed/graph/graph_planner.h"
#include "leashed/kernels/activation.h"

namespace leashed {

void plan_activation_node(AnyActivation activation, GraphPlanner& graph);

}  // namespace leashed
