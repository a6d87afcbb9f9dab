// −log softmax(o)_c for rows of class c: cross-entropy.
#include <cmath>

#include "leashed/model/losses/probabilities.h"
#include "leashed/model/losses/rows.h"

namespace leashed {
namespace {

// Finite for every finite output.
double residuals(const float* outputs, float* out, std::size_t rows, std::size_t n, std::size_t ld,
                 const Targets& targets, float scale) {
  const auto row_loss = [&](const float* o, float* p, std::size_t row, double& sum) {
    const auto label = static_cast<std::size_t>(targets.labels[row]);
    const float labelled = o[label];
    const Normaliser of = probabilities(o, p, n);
    sum += std::log(static_cast<double>(of.sum)) - (double{labelled} - double{of.maximum});
    p[label] -= 1;
  };
  return over_rows(row_loss, outputs, out, rows, n, ld, targets, scale);
}

void predict(float* o, std::size_t rows, std::size_t n, std::size_t ld) {
  for (std::size_t row = 0; row < rows; ++row, o += ld) probabilities(o, o, n);
}

}  // namespace

extern const Loss LEASHED_ISA_NAME(softmax_loss);
constinit const Loss LEASHED_ISA_NAME(softmax_loss) = {
    .name = "softmax",
    .kind = Classes::one_each,
    .curvature = 0.5,
    .residuals = residuals,
    .predict = predict,
    .correct = count_correct,
};

}  // namespace leashed
