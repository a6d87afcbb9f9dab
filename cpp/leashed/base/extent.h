// How many values sizes make together.
#pragma once

#include <cstddef>
#include <initializer_list>

namespace leashed {

// Beyond any memory, and small enough that further sums and counts of bytes do not wrap.
inline constexpr std::size_t kMostValues = std::size_t{1} << 48;

// Their product; where it is more than kMostValues, something that is.
inline std::size_t extent(std::initializer_list<std::size_t> sizes) {
  std::size_t product = 1;
  for (const std::size_t size : sizes) {
    if (size != 0 && product > kMostValues / size) return kMostValues + 1;
    product *= size;
  }
  return product;
}

}  // namespace leashed
