// How rows of values lie between the blocks of a model.
#pragma once

#include <cstddef>

#include "leashed/base/aligned.h"

namespace leashed {

// Row stride of n columns: whole cache lines and an odd number of them, so that a column's elements
// fall into different sets of the cache.
inline std::size_t row_stride(std::size_t n) {
  constexpr std::size_t kLine = kCacheLine / sizeof(float);
  return ((n + kLine - 1) / kLine | 1) * kLine;
}

}  // namespace leashed
