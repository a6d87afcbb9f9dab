// x W + b. Parameters: W [inputs][outputs], then b [outputs], whose gradient is 0 where the bias is
// not trained. DenseChain runs dense layers one after another, behind all others.
#include "leashed/network/planner.h"

namespace leashed {

void plan_dense(const Layer& layer, Planner& plan) {
  const std::size_t inputs = plan.shape().size(), outputs = plan.size(layer, "outputs");
  if (outputs == 0) plan.fail("Dense needs at least 1 output");
  plan.count(static_cast<double>(inputs) * static_cast<double>(outputs));
  const std::size_t weight = plan.parameter("weight", {inputs, outputs}, inputs, outputs);
  const std::size_t bias = plan.parameter("bias", {outputs}, inputs, outputs);
  plan.add({inputs, outputs, weight, bias, layer.value("bias", 1) != 0});
}

}  // namespace leashed
