// Maximum over windows; rows and columns that fill no window are dropped.
#pragma once

#include "leashed/base/isa.h"
#include "leashed/kernels/spatial.h"
#include "leashed/network/spatial_stage.h"

namespace leashed {

class MaxPoolStage final : public SpatialStage {
 public:
  MaxPoolStage(const PoolShape& shape, Isa isa);

  const PoolShape& shape() const { return shape_; }
  void forward(const float* theta, const float* in, float* out, std::uint8_t* kept) const override;
  void backward(const Backward&) const override;

 private:
  const PoolShape shape_;
  const SpatialKernels& kernels_;
};

}  // namespace leashed
