// ½ r² where |r| ≤ 1, and |r| − ½ beyond, r = o − v, one output, for rows of value v: least squares
// that outliers pull with a force of 1 (Huber, "Robust estimation of a location parameter", 1964).
// Another ε is this loss of o ÷ ε and v ÷ ε, times ε².
#include "leashed/model/losses/rows.h"

namespace leashed {
namespace {

double residuals(const float* outputs, float* out, std::size_t rows, std::size_t n, std::size_t ld,
                 const Targets& targets, float scale) {
  const auto row_loss = [&](const float* o, float* r, std::size_t row, double& sum) {
    const float off = o[0] - targets.values[row];
    const float slope = off > 1 ? 1 : off < -1 ? -1 : off;  // NaN stays NaN
    r[0] = slope;
    sum += double{slope} * (double{off} - 0.5 * double{slope});
  };
  return over_rows(row_loss, outputs, out, rows, n, ld, targets, scale);
}

}  // namespace

extern const Loss LEASHED_ISA_NAME(huber_loss);
constinit const Loss LEASHED_ISA_NAME(huber_loss) = {
    .name = "huber",
    .kind = Classes::none,
    .outputs = 1,
    .curvature = 1,
    .residuals = residuals,
};

}  // namespace leashed
