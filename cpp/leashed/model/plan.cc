#include "leashed/model/plan.h"

#include <algorithm>
#include <string>
#include <variant>

#include "leashed/base/error.h"

namespace leashed {
namespace {

// Adds one layer after another, keeping the shape that has been reached.
class Planner {
 public:
  Planner(Plan& plan, Shape input) : plan_(plan), shape_(input) {}

  void add(const Layer& layer) {
    std::visit([&](const auto& l) { add(l); }, layer);
    ++index_;
  }
  std::size_t outputs() const { return shape_.size(); }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error("layer " + std::to_string(index_) + ": " + why);
  }

  std::size_t parameter(const char* name, std::vector<std::size_t> shape, std::size_t fan_in,
                        std::size_t fan_out) {
    const std::size_t offset = plan_.dimension;
    std::size_t size = 1;
    for (std::size_t n : shape) size *= n;
    plan_.dimension += size;
    plan_.parameters.push_back(
        {std::to_string(index_) + "." + name, offset, std::move(shape), fan_in, fan_out});
    return offset;
  }

  // Multiply-adds of a layer's forward pass; its backward pass does the same once for the
  // parameters, and once for the input unless nothing before it has parameters.
  void count(double multiply_adds) {
    plan_.flops += 2 * multiply_adds * (plan_.parameters.empty() ? 2 : 3);
  }

  void add(const Dense& l) {
    if (l.outputs == 0) fail("Dense needs at least 1 output");
    const std::size_t inputs = shape_.size();
    count(static_cast<double>(inputs) * static_cast<double>(l.outputs));
    const std::size_t weight = parameter("weight", {inputs, l.outputs}, inputs, l.outputs);
    const std::size_t bias = parameter("bias", {l.outputs}, inputs, l.outputs);
    plan_.dense.push_back({inputs, l.outputs, weight, bias, l.trains_bias, false});
    shape_ = {l.outputs, 1, 1};
  }

  void add(const Conv2d& l) {
    if (!plan_.dense.empty()) fail("Conv2d cannot follow Dense; put it before the first Dense");
    if (l.filters == 0) fail("Conv2d needs at least 1 filter");
    if (l.kernel_h == 0 || l.kernel_w == 0) fail("Conv2d needs a kernel of at least 1 x 1");
    if (l.stride == 0) fail("Conv2d needs a stride of at least 1");
    const std::size_t height = shape_.height + 2 * l.padding;
    const std::size_t width = shape_.width + 2 * l.padding;
    if (l.kernel_h > height || l.kernel_w > width) {
      fail("Conv2d's kernel of " + by(l.kernel_h, l.kernel_w) + " is larger than its input of " +
           by(height, width) +
           " (padding included); make the kernel smaller or the padding larger");
    }
    const Shape out = {l.filters, (height - l.kernel_h) / l.stride + 1,
                       (width - l.kernel_w) / l.stride + 1};
    const std::size_t window = l.kernel_h * l.kernel_w;
    count(static_cast<double>(out.size()) * static_cast<double>(shape_.channels * window));
    SpatialStage stage{.kind = SpatialStage::Kind::conv,
                       .conv = {shape_.channels, shape_.height, shape_.width, l.filters, l.kernel_h,
                                l.kernel_w, l.stride, l.padding, out.height, out.width},
                       .inputs = shape_.size(),
                       .outputs = out.size()};
    const std::size_t fan_in = shape_.channels * window, fan_out = l.filters * window;
    stage.weight =
        parameter("weight", {l.filters, shape_.channels, l.kernel_h, l.kernel_w}, fan_in, fan_out);
    stage.bias = parameter("bias", {l.filters}, fan_in, fan_out);
    plan_.spatial.push_back(stage);
    shape_ = out;
  }

  void add(const MaxPool& l) {
    if (!plan_.dense.empty()) fail("MaxPool cannot follow Dense; put it before the first Dense");
    if (l.size == 0 || l.stride == 0) fail("MaxPool needs a size and a stride of at least 1");
    if (l.size > 15) fail("MaxPool's size is at most 15");
    if (l.size > shape_.height || l.size > shape_.width) {
      fail("MaxPool's window of " + by(l.size, l.size) + " is larger than its input of " +
           by(shape_.height, shape_.width) + "; make it smaller");
    }
    const Shape out = {shape_.channels, (shape_.height - l.size) / l.stride + 1,
                       (shape_.width - l.size) / l.stride + 1};
    const PoolShape pool = {shape_.channels, shape_.height, shape_.width, l.size,
                            l.stride,        out.height,    out.width};
    if (ends_with(SpatialStage::Kind::conv_relu) && l.stride >= l.size) {
      SpatialStage& stage = plan_.spatial.back();
      stage.kind = SpatialStage::Kind::conv_relu_pool;
      stage.pool = pool;
      stage.outputs = out.size();
    } else {
      plan_.spatial.push_back({.kind = SpatialStage::Kind::pool,
                               .pool = pool,
                               .inputs = shape_.size(),
                               .outputs = out.size()});
    }
    shape_ = out;
  }

  void add(const Relu&) {
    if (!plan_.dense.empty()) {
      plan_.dense.back().relu = true;
    } else if (ends_with(SpatialStage::Kind::conv)) {
      plan_.spatial.back().kind = SpatialStage::Kind::conv_relu;
    } else {
      const std::size_t n = shape_.size();
      plan_.spatial.push_back({.kind = SpatialStage::Kind::relu, .inputs = n, .outputs = n});
    }
  }

  bool ends_with(SpatialStage::Kind kind) const {
    return !plan_.spatial.empty() && plan_.spatial.back().kind == kind;
  }
  static std::string by(std::size_t height, std::size_t width) {
    return std::to_string(height) + " x " + std::to_string(width);
  }

  Plan& plan_;
  Shape shape_;
  std::size_t index_ = 0;
};

}  // namespace

Plan::Plan(Shape input, const std::vector<Layer>& layers) : features(input.size()) {
  if (features == 0)
    throw Error("the input shape is empty; every one of its sizes must be at least 1");
  if (layers.empty()) throw Error("a network needs at least one layer");
  Planner planner(*this, input);
  for (const Layer& layer : layers) planner.add(layer);
  if (dimension == 0)
    throw Error("a network needs at least one layer with parameters (Dense, Conv2d)");
  classes = planner.outputs();
  flat = dense.empty() ? classes : dense.front().inputs;
  first_conv = static_cast<std::size_t>(
      std::find_if(spatial.begin(), spatial.end(),
                   [](const SpatialStage& s) { return s.has_parameters(); }) -
      spatial.begin());
}

}  // namespace leashed
