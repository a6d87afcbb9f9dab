// −o of the one output, a logarithm of the probability of what was chosen (blocks/in_batch.cc),
// whatever the row's label.
#include <cmath>

#include "leashed/model/losses/rows.h"

namespace leashed {
namespace {

double residuals(const float* outputs, float* out, std::size_t rows, std::size_t n, std::size_t ld,
                 const Targets& targets, float scale) {
  const auto row_loss = [&](const float* o, float* r, std::size_t, double& sum) {
    sum -= double{o[0]};
    r[0] = -1;
  };
  return over_rows(row_loss, outputs, out, rows, n, ld, targets, scale);
}

void predict(float* o, std::size_t rows, std::size_t, std::size_t ld) {
  for (std::size_t row = 0; row < rows; ++row) o[row * ld] = std::exp(o[row * ld]);
}

// Rows whose chosen one has more than half of the probability.
std::uint64_t correct(const float* o, std::size_t rows, std::size_t, std::size_t ld,
                      const std::int32_t*) {
  std::uint64_t right = 0;
  for (std::size_t row = 0; row < rows; ++row) right += std::exp(o[row * ld]) > 0.5f;
  return right;
}

}  // namespace

extern const Loss LEASHED_ISA_NAME(in_batch_loss);
constinit const Loss LEASHED_ISA_NAME(in_batch_loss) = {
    .name = "in_batch",
    .kind = Classes::two_of_one,
    .outputs = 1,
    .curvature = 0,
    .residuals = residuals,
    .predict = predict,
    .correct = correct,
};

}  // namespace leashed
