// ½ (o − v)², one output, for rows of value v.
#include "leashed/model/losses/rows.h"

namespace leashed {
namespace {

double residuals(const float* outputs, float* out, std::size_t rows, std::size_t n, std::size_t ld,
                 const Targets& targets, float scale) {
  const auto row_loss = [&](const float* o, float* r, std::size_t row, double& sum) {
    r[0] = o[0] - targets.values[row];
    sum += 0.5 * double{r[0]} * double{r[0]};
  };
  return over_rows(row_loss, outputs, out, rows, n, ld, targets, scale);
}

}  // namespace

extern const Loss LEASHED_ISA_NAME(squared_error_loss);
constinit const Loss LEASHED_ISA_NAME(squared_error_loss) = {
    .name = "squared_error",
    .kind = Classes::none,
    .outputs = 1,
    .curvature = 1,
    .residuals = residuals,
};

}  // namespace leashed
