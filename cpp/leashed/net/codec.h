// Floats in fewer bytes, for the wire.
//
// Everything decodes to the same bits everywhere. What is not finite is not hidden: NaN and
// infinities come out as such, or as NaN. What is finite comes out finite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace leashed {

enum class Codec : std::uint16_t {
  none,  // float32
  // Its upper half, rounded to the nearest, ties to even; where that would be infinite, the largest
  // finite one.
  bfloat16,
  // Whole multiples, from -127 to 127, of a scale that a block of values shares: a 127th of the
  // largest magnitude, rounded up to a bfloat16, which stands before them. Multiples of that are
  // exact in a float. A block with a value that is not finite comes out as NaN, all of it; one
  // whose scale would be below the smallest normal float as 0; values next to the largest float, to
  // which no scale reaches, come out up to 6e-5 of them smaller.
  int8,
};
inline constexpr std::uint16_t kCodecs = 3;

// Floats that share a scale. What is encoded block by block is one encoding.
inline constexpr std::size_t kCodecBlock = 256;

// In bytes; never more than the floats themselves.
std::size_t encoded_size(Codec codec, std::size_t floats);

// `to` has encoded_size() bytes.
void encode(Codec codec, std::span<const float> values, std::byte* to);
void decode(Codec codec, const std::byte* from, std::span<float> values);

}  // namespace leashed
