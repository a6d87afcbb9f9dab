// Σ_k of max(0, 1 − m)² where m ≥ −1, and −4 m below, m = (2 z_k − 1) o_k, with z_k = 1 where k is
// the row's class and 0 elsewhere (of one output: z is the class, of two): a squared hinge that
// labels which are wrong move no more than so far (Zhang, "Solving large scale linear prediction
// problems using stochastic gradient descent algorithms", 2004).
#include "leashed/model/losses/rows.h"

namespace leashed {
namespace {

double residuals(const float* outputs, float* out, std::size_t rows, std::size_t n, std::size_t ld,
                 const Targets& targets, float scale) {
  const auto output_loss = [](float o, float& r, float z, double& sum) {
    const float sign = 2 * z - 1;
    const float m = sign * o;
    const float missing = m >= 1 ? 0 : 1 - m;  // NaN stays NaN
    r = m < -1 ? -4 * sign : -2 * sign * missing;
    sum += m < -1 ? -4 * double{m} : double{missing} * double{missing};
  };
  return one_against_rest(output_loss, outputs, out, rows, n, ld, targets, scale);
}

}  // namespace

extern const Loss LEASHED_ISA_NAME(modified_huber_loss);
constinit const Loss LEASHED_ISA_NAME(modified_huber_loss) = {
    .name = "modified_huber",
    .kind = Classes::two_of_one,
    .curvature = 2,
    .residuals = residuals,
    .correct = count_correct,
};

}  // namespace leashed
