// Kernels on the rows of tables, which other threads read and write meanwhile (Hogwild), by
// update/kernels/racy.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "leashed/base/isa.h"
#include "leashed/update/coefficients.h"

namespace leashed {

// A row that gets a gradient: θ and the states behind it; what the gradient is multiplied by, and
// accumulated squares before they see it.
struct RowUpdate {
  float* values;
  const float* gradient;
  float scale, keep;
};

// Of the coefficients all but scale and keep. moved[i], unless null: the Euclidean
// norm of what θ of the i-th row was changed by.
using RowPass = void (*)(const RowUpdate* rows, std::size_t count, std::size_t dim,
                         const Coefficients& coefficients, float* moved);

struct RowKernels {
  const RowPass* passes;  // by the rule's place in row_rules.h
  // to[i · dim ...] ← θ of row i.
  void (*gather)(float* to, const float* const* rows, std::size_t count, std::size_t dim);
  // sums[places[i] · stride ...] += of[i · dim ...], in this order.
  void (*add)(float* sums, std::size_t stride, const float* of, const std::uint32_t* places,
              std::size_t count, std::size_t dim);
  // Σ θ².
  float (*sum_of_squares)(const float* row, std::size_t dim);
};

const RowKernels& row_kernels(Isa isa = default_isa());

}  // namespace leashed
