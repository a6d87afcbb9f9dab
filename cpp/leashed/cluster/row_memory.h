// Sizes of what is said of rows, and memory for it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "leashed/base/aligned.h"

namespace leashed {

inline std::uint64_t whole_words(std::uint64_t bytes, std::uint64_t word) {
  return (bytes + word - 1) / word * word;
}

// At least so many, whatever they are; batches differ by little.
inline void reach_floats(AlignedArray<float>& memory, std::size_t n) {
  if (memory.size() < n) memory = AlignedArray<float>(n + n / 8);
}

}  // namespace leashed
