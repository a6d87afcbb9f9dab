// Rows of data, brought together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "leashed/base/aligned.h"
#include "leashed/data/batch_view.h"
#include "leashed/kernels/dense.h"
#include "leashed/model/micro_batches.h"

namespace leashed {

// The first `features` floats of each → out, row-major with that stride.
inline void gather(const float* const* rows, std::size_t count, std::size_t features, float* out,
                   std::size_t stride) {
  constexpr std::size_t kLine = kCacheLine / sizeof(float);
  constexpr std::size_t kAhead = 2;  // rows; the second-level cache can wait for more of them
  for (std::size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) {
      const float* next = rows[i + kAhead];
      for (std::size_t j = 0; j < features; j += kLine) __builtin_prefetch(next + j, 0, 2);
    }
    std::memcpy(out + i * stride, rows[i], features * sizeof(float));
  }
}

// The rows from that one on that are needed after those before it: of the batch, or of the next.
inline RowsAhead rows_after(const BatchView& batch, std::size_t row, std::size_t features) {
  const bool inside = row < batch.size;
  const float* const* from = inside ? batch.rows + row : batch.next_rows;
  const std::size_t count = std::min(kMicroBatch, inside ? batch.size - row : batch.size);
  return {from, from ? from + count : nullptr, features};
}

}  // namespace leashed
