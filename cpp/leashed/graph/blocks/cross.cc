// A cross layer, x₀ (x·w) + b + x of its inputs x₀ and x (Wang et al., "Deep & Cross Network for Ad
// Click Predictions", 2017, eq. 3). Parameters: w [width, 1], then b [width].
#include <algorithm>

#include "leashed/graph/graph_planner.h"
#include "leashed/kernels/elementwise.h"

namespace leashed {
namespace {

struct CrossParameters {
  std::size_t weight, bias;  // offsets in theta
};

class CrossBlock final : public Block {
 public:
  CrossBlock(const CrossParameters& own, const Ports& ports)
      : own_(own),
        x0_(ports.inputs[0]),
        x_(ports.inputs[1]),
        out_(ports.output),
        kernels_(elementwise_kernels(ports.isa)),
        kept_(ports.max_rows) {}

  void forward(const MicroBatch& step) override {
    kernels_.cross(x0_.values, x0_.stride, x_.values, x_.stride, step.theta + own_.weight,
                   step.theta + own_.bias, out_.values, out_.stride, step.count, out_.width,
                   kept_.data());
  }

  void backward(const MicroBatch& step, float* gradient, bool accumulate) override {
    float* const d_w = gradient + own_.weight;
    float* const d_b = gradient + own_.bias;
    if (!accumulate) {
      std::fill_n(d_w, out_.width, 0.0f);
      std::fill_n(d_b, out_.width, 0.0f);
    }
    kernels_.cross_backward({.x0 = x0_.values,
                             .x = x_.values,
                             .w = step.theta + own_.weight,
                             .d_out = out_.gradient,
                             .kept = kept_.data(),
                             .ld_x0 = x0_.stride,
                             .ld_x = x_.stride,
                             .ld_out = out_.stride,
                             .rows = step.count,
                             .n = out_.width,
                             .d_w = d_w,
                             .d_b = d_b,
                             .d_x0 = x0_.needed ? x0_.gradient : nullptr,
                             .d_x = x_.needed ? x_.gradient : nullptr,
                             .adds_d_x0 = x0_.adds,
                             .adds_d_x = x_.adds});
  }

 private:
  const CrossParameters own_;
  const InputWindow x0_, x_;
  const Window out_;
  const ElementwiseKernels& kernels_;
  std::vector<float> kept_;
};

}  // namespace

void plan_cross_node(const Node&, GraphPlanner& graph) {
  graph.takes(2, 2);
  const std::size_t n = graph.common_width();
  graph.count(2 * static_cast<double>(n), 2);
  CrossParameters own;
  own.weight = graph.parameter("weight", {n, 1}, n, 1);
  own.bias = graph.parameter("bias", {n}, n, 1);
  graph.becomes(plan_of<CrossBlock>(own), n, true);
}

}  // namespace leashed
