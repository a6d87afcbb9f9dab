// Activations of networks: behind a dense layer part of it, elsewhere a stage of their own.
#pragma once

#include "leashed/kernels/activation.h"
#include "leashed/network/planner.h"

namespace leashed {

// Whether the layer of that name becomes part of a dense one before it. Fails where that has an
// activation already.
bool joins_dense(const char* name, AnyActivation activation, Planner& plan);

// For every activation but ReLU, which works in place and which other layers absorb.
void plan_activation(const char* name, AnyActivation activation, Planner& plan);

}  // namespace leashed
