// Data normalisation (extreme-scale-asgd, eq. 10): scale · x / E(x) − shift, E(x) being the mean of
// the batch. Where |E(x)| is below 10⁻³ it counts as ±10⁻³, a constant.
#include <cmath>

#include "leashed/graph/blocks/norm.h"

namespace leashed {
namespace {

struct DataNorm {
  static constexpr bool kVariance = false;
  static constexpr float kLeast = 1e-3f;

  static bool is_least(float mean) { return std::abs(mean) < kLeast; }
  static float divisor(float mean) { return is_least(mean) ? std::copysign(kLeast, mean) : mean; }

  NormColumn column(float mean, float, float scale, float shift) const {
    return {0, scale / divisor(mean), -shift};
  }
  NormGradient gradient(float mean, float, float scale, double sum_d, double sum_dx,
                        double rows) const {
    const float e = divisor(mean);
    const float through_mean =
        is_least(mean) ? 0 : -scale * static_cast<float>(sum_dx / rows) / (e * e);
    return {static_cast<float>(sum_dx) / e, static_cast<float>(-sum_d), scale / e, 0, through_mean};
  }
};

}  // namespace

void plan_data_norm_node(const Node&, GraphPlanner& graph) { plan_norm(DataNorm{}, graph); }

}  // namespace leashed
