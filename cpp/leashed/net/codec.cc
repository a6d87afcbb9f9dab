#include "leashed/net/codec.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cstring>

namespace leashed {
namespace {

constexpr std::uint32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;   // of a float's bits
constexpr std::uint16_t kSign = 0x8000, kQuiet = 0x40, kLargest = 0x7f7f;  // of a bfloat16's
constexpr std::uint16_t kNan = 0x7fc0;

constexpr float kLevels = 127;
// The largest scale of which 127 are finite.
constexpr float kMostScale = 0x1.02p121f;
static_assert(kMostScale * kLevels <= FLT_MAX);
// A float of small magnitude plus this has it, rounded to nearest even, in its lowest bits, as a
// number of two's complement.
constexpr float kRounds = 0x1.8p23f;

using Bfloat16 = std::uint16_t;
constexpr std::size_t kScale = sizeof(Bfloat16);

std::uint32_t magnitude(float value) { return std::bit_cast<std::uint32_t>(value) & kMagnitude; }

Bfloat16 to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), size = bits & kMagnitude;
  const std::uint32_t rounded = (size + 0x7fff + (size >> 16 & 1)) >> 16;
  const std::uint32_t finite = std::min<std::uint32_t>(rounded, kLargest);
  const std::uint32_t other = size >> 16 | (size > kInfinity ? kQuiet : 0);
  return static_cast<Bfloat16>((size < kInfinity ? finite : other) | (bits >> 16 & kSign));
}

float to_float(Bfloat16 value) { return std::bit_cast<float>(std::uint32_t{value} << 16); }

// Of a block with this largest magnitude.
Bfloat16 scale_of(std::uint32_t largest) {
  if (largest >= kInfinity) return kNan;
  const float scale = std::min(std::bit_cast<float>(largest) / kLevels, kMostScale);
  if (scale < FLT_MIN) return 0;
  return static_cast<Bfloat16>((std::bit_cast<std::uint32_t>(scale) + 0xffff) >> 16);
}

void encode_block(const float* values, std::size_t count, std::byte* to) {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    largest = std::max(largest, static_cast<std::int32_t>(magnitude(values[i])));
  }
  const Bfloat16 stored = scale_of(static_cast<std::uint32_t>(largest));
  std::memcpy(to, &stored, kScale);
  std::byte* const levels = to + kScale;
  if (stored == 0 || stored == kNan) {
    std::memset(levels, 0, count);
    return;
  }
  const float inverse = 1 / to_float(stored);
  for (std::size_t i = 0; i < count; ++i) {
    const float level = std::clamp(values[i] * inverse, -kLevels, kLevels);
    levels[i] = static_cast<std::byte>(std::bit_cast<std::uint32_t>(level + kRounds));
  }
}

void decode_block(const std::byte* from, float* values, std::size_t count) {
  Bfloat16 stored;
  std::memcpy(&stored, from, kScale);
  const float scale = to_float(stored);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(static_cast<std::int8_t>(from[kScale + i])) * scale;
  }
}

// f(first value, how many, first byte) for each block.
template <class F>
void each_block(std::size_t count, const F& f) {
  for (std::size_t at = 0, byte = 0; at < count; at += kCodecBlock, byte += kScale + kCodecBlock) {
    f(at, std::min(kCodecBlock, count - at), byte);
  }
}

}  // namespace

std::size_t encoded_size(Codec codec, std::size_t floats) {
  switch (codec) {
    case Codec::none:
      break;
    case Codec::bfloat16:
      return floats * sizeof(Bfloat16);
    case Codec::int8:
      return floats + (floats + kCodecBlock - 1) / kCodecBlock * kScale;
  }
  return floats * sizeof(float);
}

void encode(Codec codec, std::span<const float> values, std::byte* to) {
  switch (codec) {
    case Codec::none:
      std::copy_n(std::as_bytes(values).data(), values.size_bytes(), to);
      return;
    case Codec::bfloat16:
      for (std::size_t i = 0; i < values.size(); ++i) {
        const Bfloat16 value = to_bfloat16(values[i]);
        std::memcpy(to + i * sizeof value, &value, sizeof value);
      }
      return;
    case Codec::int8:
      each_block(values.size(), [&](std::size_t at, std::size_t count, std::size_t byte) {
        encode_block(values.data() + at, count, to + byte);
      });
  }
}

void decode(Codec codec, const std::byte* from, std::span<float> values) {
  switch (codec) {
    case Codec::none:
      std::copy_n(from, values.size_bytes(), std::as_writable_bytes(values).data());
      return;
    case Codec::bfloat16:
      for (std::size_t i = 0; i < values.size(); ++i) {
        Bfloat16 value;
        std::memcpy(&value, from + i * sizeof value, sizeof value);
        values[i] = to_float(value);
      }
      return;
    case Codec::int8:
      each_block(values.size(), [&](std::size_t at, std::size_t count, std::size_t byte) {
        decode_block(from + byte, values.data() + at, count);
      });
  }
}

}  // namespace leashed
