// Kernels of field-aware factorisation machines, a row at a time (data/sparse_rows.h). A column's
// parameters are a record of 1 + F·k floats: its weight, then k factors for each of the F fields
// that another column may be of; that of column j lies at records + j·(1 + F·k). No row may have a
// column twice. Those that are called racy read and write floats that other threads read and write
// meanwhile (update/kernels/racy.h).
//
// o = b + Σ_i w_i x_i + Σ_{i<j} ⟨v_i,f(j), v_j,f(i)⟩ x_i x_j needs no pairs: with S_fg the sum of
// x_i v_i,g over the entries i of field f, the last part is half of Σ_fg ⟨S_fg, S_gf⟩ less what
// each entry has with itself, and its derivative by v_i,g is x_i S_g,f(i), less x_i v_i,g where g =
// f(i). Only the fields that a row has count, and each entry's derivatives are side by side as its
// factors are: S is kept the other way round.
#pragma once

#include <cstddef>
#include <cstdint>

#include "leashed/base/isa.h"
#include "leashed/data/sparse_rows.h"

namespace leashed {

// Fields of a row that follow each other.
struct FieldRun {
  std::uint32_t first;   // field
  std::uint32_t place;   // the first one's among the row's fields
  std::uint32_t length;  // fields
};
struct FieldEntry {
  std::uint32_t place;  // its field's among the row's fields
  std::uint16_t field;
  bool first, alone;  // of the row's entries of that field: the first, the only one
};
// The fields of a row, in order.
struct RowFields {
  const FieldRun* runs;
  std::size_t run_count;
  const FieldEntry* entries;
  std::size_t count;  // of the fields
};

struct FieldShape {
  std::size_t width;  // F·k
  std::size_t k;
  std::size_t stride;  // from parameters to the rule's state; 0: there is none
};

struct FieldFactorKernels {
  // The row's output. S of each two of its fields is kept for its gradient: sums [count][count][k],
  // and k floats more. Meanwhile records are fetched of the entries after the row's, which end with
  // number `end`. Racy.
  float (*output)(const float* records, const float* bias, const FieldShape& shape,
                  const SparseRows& row, const RowFields& fields, std::int64_t end, float* sums);
  // gradient += scale · the output's gradient at records, which are read as racy floats. That of
  // entry j goes to the record places[j]; null: to that of its column. (The sums change, and change
  // back.)
  void (*add)(const float* records, const FieldShape& shape, const SparseRows& row,
              const RowFields& fields, float* sums, float scale, const std::int32_t* places,
              float* gradient);
  // records += scale · the gradient; racy.
  void (*add_racy)(float* records, const FieldShape& shape, const SparseRows& row,
                   const RowFields& fields, float* sums, float scale);
  // Adagrad of scale · the gradient; accumulators lie `stride` behind. Racy.
  void (*adagrad_racy)(float* records, const FieldShape& shape, const SparseRows& row,
                       const RowFields& fields, float* sums, float scale, float lr, float epsilon);
};

const FieldFactorKernels& field_factor_kernels(Isa isa);

}  // namespace leashed
