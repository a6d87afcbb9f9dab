// What losses are made of. Like every kernel source, a loss is compiled once per instruction-set
// level, its numbers with it, and everything but its struct has internal linkage.
#pragma once

#include "leashed/base/isa_table.h"
#include "leashed/base/simd.h"
#include "leashed/model/loss.h"

namespace leashed {
namespace {

// residuals() of a loss: row_loss(o, r, row, sum) writes the derivatives r of one row's loss with
// respect to its outputs o, which may lie in the same place, and adds the loss to `sum`.
template <class RowLoss>
LEASHED_INLINE double over_rows(RowLoss row_loss, const float* outputs, float* out,
                                std::size_t rows, std::size_t n, std::size_t ld,
                                const Targets& targets, float scale) {
  double sum = 0;
  for (std::size_t row = 0; row < rows; ++row, outputs += ld, out += ld) {
    float share = scale;
    if (targets.weights) {
      double loss = 0;
      row_loss(outputs, out, row, loss);
      sum += double{targets.weights[row]} * loss;
      share *= targets.weights[row];
    } else {
      row_loss(outputs, out, row, sum);
    }
    for (std::size_t k = 0; k < n; ++k) out[k] *= share;
  }
  return sum;
}

// Of losses of classes: output_loss(o, r, z, sum) does the same for one output, z being 1 where it
// stands for the row's class and 0 elsewhere (of one output: the class, of two).
template <class OutputLoss>
LEASHED_INLINE double one_against_rest(OutputLoss output_loss, const float* outputs, float* out,
                                       std::size_t rows, std::size_t n, std::size_t ld,
                                       const Targets& targets, float scale) {
  const auto row_loss = [ =, &targets ](const float* o, float* r, std::size_t row, double& sum)
      __attribute__((always_inline)) {
    const std::int32_t label = targets.labels[row];
    for (std::size_t k = 0; k < n; ++k) {
      const bool hit = n == 1 ? label != 0 : label == static_cast<std::int32_t>(k);
      output_loss(o[k], r[k], hit ? 1.0f : 0.0f, sum);
    }
  };
  return over_rows(row_loss, outputs, out, rows, n, ld, targets, scale);
}

// correct() of such losses: the largest output tells the class, the first of several; the sign of a
// single one.
[[maybe_unused]] std::uint64_t count_correct(const float* o, std::size_t rows, std::size_t n,
                                             std::size_t ld, const std::int32_t* labels) {
  std::uint64_t correct = 0;
  for (std::size_t row = 0; row < rows; ++row, o += ld) {
    std::size_t best = n == 1 && o[0] > 0;
    for (std::size_t k = 1; k < n; ++k) best = o[k] > o[best] ? k : best;
    correct += static_cast<std::int32_t>(best) == labels[row];
  }
  return correct;
}

// correct() of losses whose last output is that of what was chosen: it is above all others.
[[maybe_unused]] std::uint64_t count_chosen_above(const float* o, std::size_t rows, std::size_t n,
                                                  std::size_t ld, const std::int32_t*) {
  std::uint64_t correct = 0;
  for (std::size_t row = 0; row < rows; ++row, o += ld) {
    bool above = true;
    for (std::size_t k = 0; k + 1 < n; ++k) above &= o[n - 1] > o[k];
    correct += above;
  }
  return correct;
}

}  // namespace
}  // namespace leashed
