#include "leashed/network/layers/relu.h"

#include "leashed/kernels/spatial.h"
#include "leashed/network/layers/activation.h"
#include "leashed/network/planner.h"

namespace leashed {

ReluStage::ReluStage(std::size_t values, Isa isa)
    : SpatialStage(values, values),
      relu_(activation_kernels(isa).relu),
      lanes_(spatial_kernels(isa).lanes) {
  in_place = true;
}

void ReluStage::forward(const float*, const float*, float* out, std::uint8_t*) const {
  relu_.forward(out, outputs * lanes_);
}

void ReluStage::backward(const Backward& b) const {
  relu_.backward(b.out, b.d_out, outputs * lanes_);
}

void plan_relu(const Layer&, Planner& plan) {
  const AnyActivation relu = &ActivationKernels::relu;
  const DenseStage* dense = plan.dense();
  if (dense && dense->activation == relu) return;  // a second one changes nothing
  if (joins_dense("ReLU", relu, plan)) return;
  plan.add(std::make_unique<ReluStage>(plan.shape().size(), plan.isa()), plan.shape());
}

}  // namespace leashed
