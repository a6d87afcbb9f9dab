// Σ_k ½ (o_k − v_k)², for rows of a value for each output.
#include "leashed/model/losses/rows.h"

namespace leashed {
namespace {

double residuals(const float* outputs, float* out, std::size_t rows, std::size_t n, std::size_t ld,
                 const Targets& targets, float scale) {
  const auto row_loss = [&](const float* o, float* r, std::size_t row, double& sum) {
    for (std::size_t k = 0; k < n; ++k) {
      r[k] = o[k] - targets.values[row * n + k];
      sum += 0.5 * double{r[k]} * double{r[k]};
    }
  };
  return over_rows(row_loss, outputs, out, rows, n, ld, targets, scale);
}

}  // namespace

extern const Loss LEASHED_ISA_NAME(squared_error_loss);
constinit const Loss LEASHED_ISA_NAME(squared_error_loss) = {
    .name = "squared_error",
    .kind = Classes::none,
    .curvature = 1,
    .residuals = residuals,
};

}  // namespace leashed
