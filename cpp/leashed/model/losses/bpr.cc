// Bayesian personalised ranking (Rendle et al., 2009): the mean of log(1 + e^(o_k − o_n)) over the
// n − 1 outputs before the last, that of what was chosen (blocks/sampled_logits.cc), whatever the
// row's label.
#include <cmath>

#include "leashed/model/losses/rows.h"

namespace leashed {
namespace {

double residuals(const float* outputs, float* out, std::size_t rows, std::size_t n, std::size_t ld,
                 const Targets& targets, float scale) {
  const auto row_loss = [&](const float* o, float* r, std::size_t, double& sum) {
    const double chosen = o[n - 1], share = 1.0 / static_cast<double>(n - 1);
    double chosen_residual = 0;
    for (std::size_t k = 0; k + 1 < n; ++k) {
      const double margin = double{o[k]} - chosen, e = std::exp(-std::fabs(margin));
      sum += share * ((margin > 0 ? margin : 0) + std::log1p(e));
      const double residual = share * (margin < 0 ? e / (1 + e) : 1 / (1 + e));
      r[k] = static_cast<float>(residual);
      chosen_residual -= residual;
    }
    r[n - 1] = static_cast<float>(chosen_residual);
  };
  return over_rows(row_loss, outputs, out, rows, n, ld, targets, scale);
}

}  // namespace

extern const Loss LEASHED_ISA_NAME(bpr_loss);
constinit const Loss LEASHED_ISA_NAME(bpr_loss) = {
    .name = "bpr",
    .kind = Classes::one_each,
    .curvature = 0.25,
    .residuals = residuals,
    .correct = count_chosen_above,
};

}  // namespace leashed
