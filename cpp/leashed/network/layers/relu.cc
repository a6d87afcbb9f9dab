#include "leashed/network/layers/relu.h"

#include "leashed/kernels/spatial.h"
#include "leashed/network/planner.h"

namespace leashed {

ReluStage::ReluStage(std::size_t values, Isa isa)
    : SpatialStage(values, values),
      kernels_(activation_kernels(isa)),
      lanes_(spatial_kernels(isa).lanes) {
  in_place = true;
}

void ReluStage::forward(const float*, const float*, float* out, std::uint8_t*) const {
  kernels_.relu(out, outputs * lanes_);
}

void ReluStage::backward(const Backward& b) const {
  kernels_.relu_backward(b.out, b.d_out, outputs * lanes_);
}

void plan_relu(const Layer&, Planner& plan) {
  if (DenseStage* dense = plan.dense()) {
    dense->relu = true;
  } else {
    plan.add(std::make_unique<ReluStage>(plan.shape().size(), plan.isa()), plan.shape());
  }
}

}  // namespace leashed
