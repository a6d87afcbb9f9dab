// Σ_k max(0, 1 − (2 z_k − 1) o_k) with z_k = 1 where k is the row's class and 0 elsewhere (of one
// output: z is the class, of two): a linear support vector machine, one class against the rest.
#include "leashed/model/losses/rows.h"

namespace leashed {
namespace {

double residuals(const float* outputs, float* out, std::size_t rows, std::size_t n, std::size_t ld,
                 const Targets& targets, float scale) {
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
