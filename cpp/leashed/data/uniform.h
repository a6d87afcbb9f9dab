// Uniform numbers of the words of a counter-based generator.
#pragma once

#include <cstdint>

#include "leashed/base/philox.h"

namespace leashed {

inline constexpr double kUnit32 = 0x1p-32;  // a word times this is in [0, 1)

inline double uniform53(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((std::uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}

// A key for one purpose, of a seed's.
inline std::uint64_t key_of(std::uint64_t seed, std::uint64_t purpose, std::uint64_t number = 0) {
  const auto words = philox(seed, purpose, number);
  return words[0] | std::uint64_t{words[1]} << 32;
}

// In [-1, 1): the field 0, 1 or 2 of so many bits.
inline float signed_field(std::uint64_t bits, unsigned place) {
  const auto value = static_cast<std::int32_t>(bits >> 21 * place & 0x1fffff);
  return static_cast<float>(value - 0x100000) * 0x1p-20f;
}

}  // namespace leashed
