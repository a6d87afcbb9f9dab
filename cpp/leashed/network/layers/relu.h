// max(0, x), with layers before it that fuse with it.
#pragma once

#include "leashed/kernels/activation.h"
#include "leashed/network/spatial_stage.h"

namespace leashed {

class ReluStage final : public SpatialStage {
 public:
  ReluStage(std::size_t values, Isa isa);

  void forward(const float* theta, const float* in, float* out, std::uint8_t* kept) const override;
  void backward(const Backward&) const override;

 private:
  const Activation& relu_;
  const std::size_t lanes_;
};

}  // namespace leashed
