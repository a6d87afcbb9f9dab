// Σ_k max(0, 1 − (2 z_k − 1) o_k) with z_k = 1 where k is the row's class and 0 elsewhere (of one
// output: z is the class, of two): a linear support vector machine, one class against the rest.
#include "leashed/model/losses/rows.h"

namespace leashed {
namespace {

// Without branches, which would be taken at random, to the bits of one_against_rest.
double residuals_of_one(const float* outputs, float* out, std::size_t rows, std::size_t ld,
                        const Targets& targets, float scale) {
  double sum = 0;
  for (std::size_t row = 0; row < rows; row += kLanes) {
    const std::size_t count = rows - row < kLanes ? rows - row : kLanes;
    float o[kLanes] = {}, sign[kLanes] = {};
    for (std::size_t j = 0; j < count; ++j) {
      o[j] = outputs[(row + j) * ld];
      sign[j] = 2 * static_cast<float>(targets.labels[row + j] != 0) - 1;
    }
    const vfloat loss = 1.0f - vload(sign) * vload(o);
    const vfloat residual = loss <= vfloat{} ? vfloat{} : -vload(sign);
    const vfloat kept = loss <= vfloat{} ? vfloat{} : loss;
    for (std::size_t j = 0; j < count; ++j) {
      const float weight = targets.weights ? targets.weights[row + j] : 1;
      out[(row + j) * ld] = residual[j] * (scale * weight);
      sum += double{weight} * double{kept[j]};
    }
  }
  return sum;
}

double residuals(const float* outputs, float* out, std::size_t rows, std::size_t n, std::size_t ld,
                 const Targets& targets, float scale) {
  if (n == 1) return residuals_of_one(outputs, out, rows, ld, targets, scale);
  const auto output_loss = [](float o, float& r, float z, double& sum) {
    const float sign = 2 * z - 1;
    const float loss = 1 - sign * o;
    r = loss <= 0 ? 0 : -sign;
    sum += loss <= 0 ? 0 : double{loss};
  };
  return one_against_rest(output_loss, outputs, out, rows, n, ld, targets, scale);
}

}  // namespace

extern const Loss LEASHED_ISA_NAME(hinge_loss);
constinit const Loss LEASHED_ISA_NAME(hinge_loss) = {
    .name = "hinge",
    .kind = Classes::two_of_one,
    .curvature = 1,  // over the width of its margin
    .residuals = residuals,
    .correct = count_correct,
};

}  // namespace leashed
