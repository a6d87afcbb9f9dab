// Σ_k log(1 + e^o_k) − v_k o_k over the outputs whose value v_k, 0 or 1, is known: a logistic
// regression of each, of labels that do not exclude each other (several heads of one model). The
// sum, so that each head is trained as much as if it were alone. A value of NaN is one that is not
// known: its output is left out of the row's loss.
#include "leashed/model/losses/logistic.h"
#include "leashed/model/losses/rows.h"

namespace leashed {
namespace {

double residuals(const float* outputs, float* out, std::size_t rows, std::size_t n, std::size_t ld,
                 const Targets& targets, float scale) {
  const auto row_loss = [&](const float* o, float* r, std::size_t row, double& sum) {
    const float* const values = targets.values + row * n;
    for (std::size_t k = 0; k < n; ++k) {
      const bool known = values[k] == values[k];  // no NaN
      if (!known) {
        r[k] = 0 * o[k];  // NaN stays NaN
        sum += double{r[k]};
        continue;
      }
      const Judged judged = judge(o[k], values[k]);
      r[k] = judged.residual;
      sum += judged.loss;
    }
  };
  return over_rows(row_loss, outputs, out, rows, n, ld, targets, scale);
}

}  // namespace

extern const Loss LEASHED_ISA_NAME(binary_cross_entropy_loss);
constinit const Loss LEASHED_ISA_NAME(binary_cross_entropy_loss) = {
    .name = "binary_cross_entropy",
    .kind = Classes::two_of_each,
    .curvature = 0.25,
    .residuals = residuals,
    .predict = predict_logistic,
};

}  // namespace leashed
