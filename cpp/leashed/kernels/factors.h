// Kernels of factorisation machines on sparse rows (data/sparse_rows.h). A column's parameters are
// a record of 1 + k floats: its weight, then its factors; that of column j lies at records +
// j·(1 + k). No row may have a column twice. Those that are called racy read and write floats that
// other threads read and write meanwhile (update/kernels/racy.h).
#pragma once

#include <cstddef>

#include "leashed/base/isa.h"
#include "leashed/data/sparse_rows.h"

namespace leashed {

// What is kept of the outputs of some rows for their gradient.
struct FactorSums {
  float* sums = nullptr;     // [count][k], Σ x v; null: nothing is kept
  float* factors = nullptr;  // [entries][k], v as it was read; null: not kept
};

// Records that a product fetches while it computes: of the entries after those it reads, and before
// number `end`; and as much `stride` behind each, where that is not 0.
struct FactorsAhead {
  std::int64_t end = 0;
  std::size_t stride = 0;
};

struct FactorKernels {
  // out [count] = bias + Σ x w + ½ Σ_f ((Σ x v_f)² − Σ (x v_f)²); racy.
  void (*outputs)(const float* records, const float* bias, std::size_t k, const SparseRows& rows,
                  std::size_t count, const FactorsAhead& ahead, float* out, const FactorSums& kept);
  // gradient += scale · the gradient at records, which are read as racy floats. Of entry j of these
  // rows it goes to the record places[j]; null: to that of the entry's column.
  void (*add)(const float* records, std::size_t k, const SparseRows& rows, std::size_t count,
              const float* residuals, const float* sums, float scale, const std::int32_t* places,
              float* gradient);
  // records += scale · the gradient, of the factors as they were kept, or as they are where none
  // were; racy.
  void (*add_racy)(float* records, std::size_t k, const SparseRows& rows, std::size_t count,
                   const float* residuals, const FactorSums& kept, float scale);
  // SGD and Adagrad on `count` columns whose gradient is `gradient` [count][1 + k], which is set to
  // 0; accumulators lie `stride` behind. Racy, but for the gradient.
  void (*sgd_racy)(float* records, std::size_t k, const std::int32_t* columns, std::size_t count,
                   float* gradient, float lr);
  void (*adagrad_racy)(float* records, std::size_t stride, std::size_t k,
                       const std::int32_t* columns, std::size_t count, float* gradient, float lr,
                       float epsilon);
  // The same for one row, in which no column comes again: its gradient is scale · residual · that
  // of its output, whose sums were kept, and goes from one to the other in registers.
  void (*adagrad_row_racy)(float* records, std::size_t stride, std::size_t k, const SparseRows& row,
                           float residual, const float* sums, float scale, float lr, float epsilon);
};

const FactorKernels& factor_kernels(Isa isa);

}  // namespace leashed
