#include "leashed/network/layers/activation.h"

#include <algorithm>
#include <memory>
#include <string>

#include "leashed/kernels/spatial.h"
#include "leashed/network/spatial_stage.h"

namespace leashed {
namespace {

class ActivationStage final : public SpatialStage {
 public:
  ActivationStage(AnyActivation activation, std::size_t values, Isa isa)
      : SpatialStage(values, values),
        activation_(activation_kernels(isa).*activation),
        lanes_(spatial_kernels(isa).lanes) {}

  void forward(const float*, const float* in, float* out, std::uint8_t*) const override {
    std::copy_n(in, outputs * lanes_, out);
    activation_.forward(out, outputs * lanes_);
  }

  void backward(const Backward& b) const override {
    if (!b.d_in) return;
    std::copy_n(b.d_out, outputs * lanes_, b.d_in);
    activation_.backward(b.out, b.d_in, outputs * lanes_);
  }

 private:
  const Activation& activation_;
  const std::size_t lanes_;
};

}  // namespace

bool joins_dense(const char* name, AnyActivation activation, Planner& plan) {
  DenseStage* dense = plan.dense();
  if (!dense) return false;
  if (dense->activation) {
    plan.fail(std::string(name) + " cannot follow another activation; put a Dense between them");
  }
  dense->activation = activation;
  return true;
}

void plan_activation(const char* name, AnyActivation activation, Planner& plan) {
  if (joins_dense(name, activation, plan)) return;
  const Shape shape = plan.shape();
  plan.add(std::make_unique<ActivationStage>(activation, shape.size(), plan.isa()), shape);
}

}  // namespace leashed
