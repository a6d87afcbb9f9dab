// Batch normalisation (Ioffe and Szegedy, 2015), each worker's batches by themselves
// (extreme-scale-asgd, Algorithm 1): scale · (x − mean) / √(variance + eps) + shift.
#include <cmath>

#include "leashed/graph/blocks/norm.h"

namespace leashed {
namespace {

struct BatchNorm {
  static constexpr bool kVariance = true;
  static constexpr float kLeast = 0;

  float eps;

  float inverse(float variance) const { return 1 / std::sqrt(variance + eps); }
  NormColumn column(float mean, float variance, float scale, float shift) const {
    return {mean, scale * inverse(variance), shift};
  }
  NormGradient gradient(float, float variance, float scale, double sum_d, double sum_dx,
                        double rows) const {
    const float r = inverse(variance);
    const auto mean_d = static_cast<float>(sum_d / rows);
    const auto mean_dx = static_cast<float>(sum_dx / rows);
    return {static_cast<float>(sum_dx) * r, static_cast<float>(sum_d), scale * r,
            -scale * r * r * r * mean_dx, -scale * r * mean_d};
  }
};

}  // namespace

void plan_batch_norm_node(const Node& node, GraphPlanner& graph) {
  const double eps = node.kind["eps"];
  if (!(eps >= 1e-12)) graph.fail("eps must be at least 1e-12");  // its inverse cubed is a float
  plan_norm(BatchNorm{static_cast<float>(eps)}, graph);
}

}  // namespace leashed
