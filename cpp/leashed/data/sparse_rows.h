#pragma once

#include <cstddef>
#include <cstdint>

namespace leashed {

// Rows in CSR form, that somebody else owns: row i has the values at offsets[i] to offsets[i + 1],
// each in the column of the same place. A column may occur more than once in a row: its values add
// up.
struct SparseRows {
  const std::int64_t* offsets = nullptr;
  const std::int32_t* columns = nullptr;
  const float* values = nullptr;  // null: all of them are 1

  explicit operator bool() const { return offsets != nullptr; }
  SparseRows from(std::size_t row) const { return {offsets + row, columns, values}; }
};

}  // namespace leashed
