// −log softmax(o)_n of the last of n outputs, that of what was chosen (blocks/sampled_logits.cc),
// whatever the row's label.
#include "leashed/model/losses/probabilities.h"
#include "leashed/model/losses/rows.h"

namespace leashed {
namespace {

double residuals(const float* outputs, float* out, std::size_t rows, std::size_t n, std::size_t ld,
                 const Targets& targets, float scale) {
  const auto row_loss = [&](const float* o, float* p, std::size_t, double& sum) {
    const float chosen = o[n - 1];
    const Normaliser of = probabilities(o, p, n);
    sum += std::log(static_cast<double>(of.sum)) - (double{chosen} - double{of.maximum});
    p[n - 1] -= 1;
  };
  return over_rows(row_loss, outputs, out, rows, n, ld, targets, scale);
}

void predict(float* o, std::size_t rows, std::size_t n, std::size_t ld) {
  for (std::size_t row = 0; row < rows; ++row, o += ld) probabilities(o, o, n);
}

}  // namespace

extern const Loss LEASHED_ISA_NAME(sampled_softmax_loss);
constinit const Loss LEASHED_ISA_NAME(sampled_softmax_loss) = {
    .name = "sampled_softmax",
    .kind = Classes::one_each,
    .curvature = 0.5,
    .residuals = residuals,
    .predict = predict,
    .correct = count_chosen_above,
};

}  // namespace leashed
