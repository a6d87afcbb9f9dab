#include "leashed/network/layers/activation.h"

namespace leashed {

void plan_tanh(const Layer&, Planner& plan) {
  plan_activation("Tanh", &ActivationKernels::tanh, plan);
}

}  // namespace leashed
