#include "leashed/network/layers/activation.h"

namespace leashed {

void plan_sigmoid(const Layer&, Planner& plan) {
  plan_activation("Sigmoid", &ActivationKernels::sigmoid, plan);
}

}  // namespace leashed
