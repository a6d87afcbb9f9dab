#include "leashed/network/layers/max_pool.h"

#include "leashed/network/planner.h"

namespace leashed {

MaxPoolStage::MaxPoolStage(const PoolShape& shape, Isa isa)
    : SpatialStage(shape.channels * shape.height * shape.width,
                   shape.channels * shape.out_height * shape.out_width),
      shape_(shape),
      kernels_(spatial_kernels(isa)) {
  kept = outputs;  // where the maxima were
}

void MaxPoolStage::forward(const float*, const float* in, float* out, std::uint8_t* kept) const {
  kernels_.pool_forward(shape_, in, out, kept);
}

void MaxPoolStage::backward(const Backward& b) const {
  if (b.d_in) kernels_.pool_backward(shape_, b.d_out, b.kept, b.d_in);
}

void plan_max_pool(const Layer& layer, Planner& plan) {
  const Shape in = plan.images("MaxPool");
  const std::size_t size = plan.size(layer, "size"), stride = plan.size(layer, "stride");
  if (size == 0 || stride == 0) plan.fail("MaxPool needs a size and a stride of at least 1");
  if (size > 15) plan.fail("MaxPool's size is at most 15");
  if (size > in.height || size > in.width) {
    plan.fail("MaxPool's window of " + by(size, size) + " is larger than its input of " +
              by(in.height, in.width) + "; make it smaller");
  }
  const Shape out = {in.channels, (in.height - size) / stride + 1, (in.width - size) / stride + 1};
  const PoolShape pool = {in.channels, in.height, in.width, size, stride, out.height, out.width};
  plan.add(std::make_unique<MaxPoolStage>(pool, plan.isa()), out);
}

}  // namespace leashed
