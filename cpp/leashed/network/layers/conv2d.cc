// Cross-correlation. Parameters: W [filters][channels][kernel_h][kernel_w], then b [filters]. A
// ReLU after it is fused, and so is max-pooling after that whose windows do not overlap.
#include <optional>

#include "leashed/kernels/spatial.h"
#include "leashed/network/layers/max_pool.h"
#include "leashed/network/layers/relu.h"
#include "leashed/network/planner.h"

namespace leashed {
namespace {

class Conv2dStage final : public SpatialStage {
 public:
  Conv2dStage(const ConvShape& shape, std::size_t weight, std::size_t bias, Isa isa)
      : SpatialStage(shape.channels * shape.height * shape.width,
                     shape.filters * shape.out_height * shape.out_width),
        shape_(shape),
        weight_(weight),
        bias_(bias),
        kernels_(spatial_kernels(isa)),
        activation_(activation_kernels(isa)) {
    has_parameters = true;
    scratch = kernels_.conv_scratch(shape_);
  }

  bool absorb(const SpatialStage& next) override {
    if (!relu_) return relu_ = dynamic_cast<const ReluStage*>(&next) != nullptr;
    const auto* pool = dynamic_cast<const MaxPoolStage*>(&next);
    if (pool_ || !pool || pool->shape().stride < pool->shape().size) return false;
    pool_ = pool->shape();
    outputs = pool->outputs;
    kept = pool->kept;
    scratch = kernels_.conv_relu_pool_scratch(shape_, *pool_);
    return true;
  }

  void forward(const float* theta, const float* in, float* out, std::uint8_t* kept) const override {
    const float* w = theta + weight_;
    const float* b = theta + bias_;
    if (pool_) {
      kernels_.conv_relu_pool_forward(shape_, *pool_, w, b, in, out, kept);
    } else {
      kernels_.conv_forward(shape_, w, b, in, out, relu_);
    }
  }

  void backward(const Backward& b) const override {
    const float* w = b.theta + weight_;
    float* dw = b.gradient + weight_;
    float* db = b.gradient + bias_;
    if (pool_) {
      kernels_.conv_relu_pool_backward_parameters(shape_, *pool_, b.in, b.d_out, b.kept, dw, db,
                                                  b.scratch);
      if (!b.d_in) return;
      kernels_.conv_relu_pool_backward_input(shape_, *pool_, w, b.d_out, b.kept, b.d_in, b.scratch);
    } else {
      if (relu_) activation_.relu.backward(b.out, b.d_out, outputs * kernels_.lanes);
      kernels_.conv_backward_parameters(shape_, b.in, b.d_out, dw, db, b.scratch);
      if (b.d_in) kernels_.conv_backward_input(shape_, w, b.d_out, b.d_in);
    }
  }

 private:
  const ConvShape shape_;
  const std::size_t weight_, bias_;  // offsets in theta
  const SpatialKernels& kernels_;
  const ActivationKernels& activation_;
  bool relu_ = false;
  std::optional<PoolShape> pool_;
};

}  // namespace

void plan_conv2d(const Layer& layer, Planner& plan) {
  const Shape in = plan.images("Conv2d");
  const std::size_t filters = plan.size(layer, "filters"), stride = plan.size(layer, "stride");
  const std::size_t kernel_h = plan.size(layer, "kernel_h"),
                    kernel_w = plan.size(layer, "kernel_w");
  const std::size_t padding = plan.size(layer, "padding");
  if (filters == 0) plan.fail("Conv2d needs at least 1 filter");
  if (kernel_h == 0 || kernel_w == 0) plan.fail("Conv2d needs a kernel of at least 1 x 1");
  if (stride == 0) plan.fail("Conv2d needs a stride of at least 1");
  const std::size_t height = in.height + 2 * padding, width = in.width + 2 * padding;
  if (kernel_h > height || kernel_w > width) {
    plan.fail("Conv2d's kernel of " + by(kernel_h, kernel_w) + " is larger than its input of " +
              by(height, width) +
              " (padding included); make the kernel smaller or the padding "
              "larger");
  }
  const Shape out = {filters, (height - kernel_h) / stride + 1, (width - kernel_w) / stride + 1};
  const std::size_t fan_in = plan.values({in.channels, kernel_h, kernel_w});
  const std::size_t fan_out = plan.values({filters, kernel_h, kernel_w});
  const std::size_t outputs = plan.values({out.channels, out.height, out.width});
  plan.count(static_cast<double>(outputs) * static_cast<double>(fan_in));
  const std::size_t weight =
      plan.parameter("weight", {filters, in.channels, kernel_h, kernel_w}, fan_in, fan_out);
  const std::size_t bias = plan.parameter("bias", {filters}, fan_in, fan_out);
  const ConvShape shape = {in.channels, in.height, in.width, filters,    kernel_h,
                           kernel_w,    stride,    padding,  out.height, out.width};
  plan.add(std::make_unique<Conv2dStage>(shape, weight, bias, plan.isa()), out);
}

}  // namespace leashed
