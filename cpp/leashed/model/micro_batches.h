// A batch is worked through in micro-batches of at most so many rows: few enough for activations to
// stay in the second-level cache and for a cancelled gradient to end soon, many enough for the
// weights and their gradient, read and written once for each, not to count.
#pragma once

#include <algorithm>
#include <cstddef>

namespace leashed {

inline constexpr std::size_t kMicroBatch = 64;

// Calls work(first, count) for each micro-batch, all of nearly one size and multiples of `multiple`
// where they can be, until it returns false. `most`: rows of one.
template <class Work>
void for_each_micro_batch(std::size_t rows, std::size_t multiple, Work work,
                          std::size_t most = kMicroBatch) {
  const std::size_t batches = (rows + most - 1) / most;
  for (std::size_t first = 0, i = 0; first < rows; ++i) {
    const std::size_t share = (rows - first + batches - i - 1) / (batches - i);
    const std::size_t count = std::min(rows - first, (share + multiple - 1) / multiple * multiple);
    if (!work(first, count)) return;
    first += count;
  }
}

}  // namespace leashed
