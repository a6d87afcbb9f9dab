// Floats in fewer bytes: against a plain reference, and what is promised of every value.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "leashed/net/codec.h"
#include "leashed/net/feedback.h"

using namespace leashed;

namespace {

constexpr Codec kLossy[] = {Codec::bfloat16, Codec::int8};
constexpr Codec kAll[] = {Codec::none, Codec::bfloat16, Codec::int8};
constexpr std::size_t kLengths[] = {0, 1, 2, 3, 255, 256, 257, 511, 512, 513, 768};
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<std::byte> encoded(Codec codec, const std::vector<float>& values) {
  // Where it writes too much, this is seen.
  std::vector<std::byte> bytes(encoded_size(codec, values.size()) + 1, std::byte{0xa5});
  encode(codec, values, bytes.data());
  CHECK(bytes.back() == std::byte{0xa5});
  bytes.pop_back();
  return bytes;
}

std::vector<float> there_and_back(Codec codec, const std::vector<float>& values) {
  const std::vector<std::byte> bytes = encoded(codec, values);
  std::vector<float> back(values.size(), kNan);
  decode(codec, bytes.data(), back);
  return back;
}

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

// The nearest number with an 8-bit significand, by arithmetic in which all of it is exact.
float nearest_bfloat16(float value) {
  if (!std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value == 0 ? FLT_MIN : value), -126);
  const double unit = std::ldexp(1.0, exponent - 7);
  const double nearest = std::nearbyint(value / unit) * unit;  // ties to even
  const double largest = std::ldexp(255.0, 120);
  return std::copysign(static_cast<float>(std::min(std::abs(nearest), largest)), value);
}

// A random float of any size: random bits, but nothing that is not finite.
float any_float(std::mt19937_64& random) {
  for (;;) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isfinite(value)) return value;
  }
}

// Of one kind each: of any size; alike in size; tiny; huge; mostly 0; all equal.
std::vector<float> draw(std::mt19937_64& random, std::size_t length) {
  std::normal_distribution<float> normal;
  const auto kind = random() % 6;
  const float equal = any_float(random);
  std::vector<float> values(length);
  for (float& value : values) {
    switch (kind) {
      case 0:
        value = any_float(random);
        break;
      case 1:
        value = normal(random);
        break;
      case 2:
        value = normal(random) * 1e-38f;
        break;
      case 3:
        value = std::clamp(normal(random), -3.0f, 3.0f) * 1e38f;
        break;
      case 4:
        value = random() % 8 == 0 ? normal(random) : random() % 2 == 0 ? 0.0f : -0.0f;
        break;
      default:
        value = equal;
    }
  }
  return values;
}

}  // namespace

TEST_CASE("an encoding has the size that is told, and never more than the floats") {
  for (const std::size_t n : kLengths) {
    CHECK(encoded_size(Codec::none, n) == 4 * n);
    CHECK(encoded_size(Codec::bfloat16, n) == 2 * n);
    CHECK(encoded_size(Codec::int8, n) == n + 2 * ((n + 255) / 256));
    for (const Codec codec : kAll) CHECK(encoded_size(codec, n) <= 4 * n);
  }
}

TEST_CASE("without a codec values come out as they went in") {
  std::mt19937_64 random(1);
  for (const std::size_t n : kLengths) {
    const std::vector<float> values = draw(random, n);
    CHECK(there_and_back(Codec::none, values) == values);
  }
}

TEST_CASE("bfloat16 is the nearest one, ties to even, for any bits whatever") {
  std::mt19937_64 random(2);
  std::vector<float> values{0.0f,         -0.0f,         1.0f,         0x1.01p0f,
                            0x1.03p0f,    -0x1.01p0f,    0x1.01001p0f, FLT_MIN,
                            FLT_TRUE_MIN, -FLT_TRUE_MIN, 0x1p-134f,    0x1.8p-133f,
                            FLT_MAX,      -FLT_MAX,      0x1.fep127f,  0x1.ffp127f};
  while (values.size() < 200000) values.push_back(any_float(random));
  const std::vector<float> back = there_and_back(Codec::bfloat16, values);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    wrong += bits(back[i]) != bits(nearest_bfloat16(values[i]));
  }
  CHECK(wrong == 0);
  CHECK(there_and_back(Codec::bfloat16, back) == back);
}

TEST_CASE("bfloat16 keeps infinities and NaN, with a NaN's sign, whatever its bits") {
  std::vector<float> values{kInf, -kInf};
  for (const std::uint32_t payload : {1u, 0x7fffu, 0xffffu, 0x10000u, 0x3fffffu, 0x400000u}) {
    values.push_back(std::bit_cast<float>(0x7f800000u | payload));
    values.push_back(std::bit_cast<float>(0xff800000u | payload));
  }
  const std::vector<float> back = there_and_back(Codec::bfloat16, values);
  CHECK(back[0] == kInf);
  CHECK(back[1] == -kInf);
  for (std::size_t i = 2; i < back.size(); ++i) {
    CHECK(std::isnan(back[i]));
    CHECK(std::signbit(back[i]) == std::signbit(values[i]));
  }
}

TEST_CASE("int8 comes within half a scale, which is the largest magnitude's 127th, rounded up") {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 2000; ++trial) {
    const std::size_t n = kLengths[random() % std::size(kLengths)];
    const std::vector<float> values = draw(random, n);
    const std::vector<std::byte> bytes = encoded(Codec::int8, values);
    std::vector<float> back(n);
    decode(Codec::int8, bytes.data(), back);
    for (std::size_t at = 0, byte = 0; at < n; at += kCodecBlock, byte += 2 + kCodecBlock) {
      const std::size_t end = std::min(n, at + kCodecBlock);
      double largest = 0;
      for (std::size_t i = at; i < end; ++i)
        largest = std::max<double>(largest, std::abs(values[i]));
      std::uint16_t stored;
      std::memcpy(&stored, bytes.data() + byte, sizeof stored);
      const double scale = std::bit_cast<float>(std::uint32_t{stored} << 16);
      // A quotient of FLT_MIN, as a float, may have been a little less.
      if (largest < 127 * double{FLT_MIN} * (1 - 1e-7)) CHECK(scale == 0);
      if (scale > 0) {
        CHECK(scale <= largest / 127 * (1 + 1.0 / 128 + 1e-6));
        CHECK(127 * scale >= largest * (1 - 6.2e-5 * (largest > 0.999 * FLT_MAX)) * (1 - 1e-7));
      }
      const double most = scale > 0
                              ? scale * (0.5 + 1e-5) + (largest > 0.999 * FLT_MAX) * scale / 100
                              : 127.01 * double{FLT_MIN};
      std::size_t wrong = 0;
      for (std::size_t i = at; i < end; ++i) {
        wrong += !(std::abs(double{back[i]} - values[i]) <= most) || !std::isfinite(back[i]);
        // Whole multiples, exactly.
        wrong += scale > 0 && std::fmod(double{back[i]}, scale) != 0;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE(
    "int8: blocks of zeros, of tiny and of equal values, and the ends of what floats can be") {
  CHECK(there_and_back(Codec::int8, {0.0f, -0.0f, 0.0f}) == std::vector<float>{0, 0, 0});
  CHECK(there_and_back(Codec::int8, {FLT_TRUE_MIN, -1e-40f, FLT_MIN}) ==
        std::vector<float>{0, 0, 0});
  for (const float value : {1.0f, -3.7e-30f, 1e30f, FLT_MAX, -FLT_MAX}) {
    const std::vector<float> back = there_and_back(Codec::int8, std::vector<float>(300, value));
    for (const float each : back) {
      CHECK(std::isfinite(each));
      CHECK(each == back[0]);
      CHECK(std::abs(each / value - 1) <= 1.0 / 250);
    }
  }
}

TEST_CASE("int8: a value that is not finite makes its block NaN, and no other") {
  for (const float bad : {kNan, -kNan, kInf, -kInf}) {
    std::vector<float> values(3 * kCodecBlock - 5, 1.0f);
    values[kCodecBlock + 17] = bad;
    const std::vector<float> back = there_and_back(Codec::int8, values);
    for (std::size_t i = 0; i < back.size(); ++i) {
      CHECK(std::isnan(back[i]) == (i / kCodecBlock == 1));
    }
  }
}

TEST_CASE("the bytes of blocks behind each other are those of all of them") {
  std::mt19937_64 random(4);
  for (const Codec codec : kAll) {
    const std::vector<float> values = draw(random, 3 * kCodecBlock - 100);
    const std::vector<std::byte> whole = encoded(codec, values);
    std::vector<std::byte> pieces;
    for (std::size_t at = 0; at < values.size(); at += kCodecBlock) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(at);
      const auto end =
          begin + static_cast<std::ptrdiff_t>(std::min(kCodecBlock, values.size() - at));
      const std::vector<std::byte> piece = encoded(codec, {begin, end});
      pieces.insert(pieces.end(), piece.begin(), piece.end());
    }
    CHECK(whole == pieces);
  }
}

TEST_CASE("what is told and heard is the same on both sides, and comes to be what is meant") {
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal;
  for (const Codec codec : kLossy) {
    for (const std::size_t n : kLengths) {
      std::vector<float> values(n), here(n, 0.0f), there(n, 0.0f);
      for (float& value : values) value = normal(random);
      std::vector<std::byte> bytes(encoded_size(codec, n));
      for (int time = 0; time < 8; ++time) {
        tell(codec, values, here, bytes.data());
        decode_and_add(codec, bytes.data(), there);
        CHECK((n == 0 || std::memcmp(here.data(), there.data(), n * sizeof(float)) == 0));
      }
      for (std::size_t i = 0; i < n; ++i) {
        CHECK(std::abs(there[i] - values[i]) <= std::abs(values[i]) * FLT_EPSILON);
      }
    }
  }
}

TEST_CASE("what was sent and what is missing make what was meant, to the rounding of floats") {
  std::mt19937_64 random(6);
  std::normal_distribution<float> normal;
  constexpr std::size_t n = 2 * kCodecBlock + 7;
  for (const Codec codec : kLossy) {
    std::vector<float> error(n, 0.0f);
    std::vector<double> meant(n), sent(n);
    for (int time = 0; time < 50; ++time) {
      std::vector<float> values(n);
      for (std::size_t i = 0; i < n; ++i) meant[i] += values[i] = normal(random);
      std::vector<std::byte> bytes(encoded_size(codec, n));
      encode_with_error(codec, values, error, bytes.data());
      std::vector<float> sum(n, 0.0f);
      decode_and_add(codec, bytes.data(), sum);
      for (std::size_t i = 0; i < n; ++i) sent[i] += sum[i];
    }
    for (std::size_t i = 0; i < n; ++i) {
      CHECK(sent[i] + error[i] == doctest::Approx(meant[i]).epsilon(1e-4));
      CHECK(std::abs(error[i]) < 0.03);  // of one encoding, not of fifty
    }
  }
}

TEST_CASE("values are encoded and decoded where they lie as elsewhere") {
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  for (const Codec codec : kLossy) {
    for (const std::size_t n : kLengths) {
      std::vector<float> values(n), error(n), same_error;
      for (float& value : values) value = normal(random);
      for (float& value : error) value = 0.001f * normal(random);
      same_error = error;
      std::vector<std::byte> bytes(encoded_size(codec, n));
      encode_with_error(codec, values, error, bytes.data());
      std::vector<float> expected(n);
      decode(codec, bytes.data(), expected);
      encode_with_error(codec, values, same_error,
                        std::as_writable_bytes(std::span(values)).data());
      CHECK((n == 0 || std::memcmp(values.data(), bytes.data(), bytes.size()) == 0));
      CHECK(same_error == error);
      decode_in_place(codec, values);
      CHECK(values == expected);
    }
  }
}
