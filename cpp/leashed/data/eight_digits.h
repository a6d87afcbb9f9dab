// Up to eight digits of text at once, a byte of a word each. Eight bytes from the text on may be
// read.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace leashed {

constexpr std::uint64_t in_all_bytes(std::uint64_t byte) { return byte * 0x0101010101010101; }

// The first byte is the lowest.
inline std::uint64_t eight_bytes(const char* text) {
  std::uint64_t bytes;
  std::memcpy(&bytes, text, sizeof bytes);
  if constexpr (std::endian::native == std::endian::big) bytes = __builtin_bswap64(bytes);
  return bytes;
}

// Eight hexadecimal digits. False where they are none; the number is anything then. A byte x below
// 128 is at most b where x + (127 − b) is below 128 too.
inline bool hexadecimal_digits(const char* text, std::uint64_t& number) {
  const std::uint64_t bytes = eight_bytes(text), top = in_all_bytes(0x80);
  const std::uint64_t digits = bytes ^ in_all_bytes('0');                           // 0 to 9
  const std::uint64_t letters = (bytes | in_all_bytes(0x20)) ^ in_all_bytes(0x60);  // 1 to 6
  const std::uint64_t are_digits = ~(digits + in_all_bytes(127 - 9));
  const std::uint64_t are_letters =
      (letters + in_all_bytes(127)) & ~(letters + in_all_bytes(127 - 6));
  std::uint64_t n = (bytes & in_all_bytes(0x0f)) + 9 * ((bytes >> 6) & in_all_bytes(0x01));
  n = (n << 4 | n >> 8) & 0x00ff00ff00ff00ff;
  n = (n << 8 | n >> 16) & 0x0000ffff0000ffff;
  number = (n << 16 | n >> 32) & 0xffffffff;
  return (bytes & top) == 0 && ((are_digits | are_letters) & top) == top;
}

// Decimal digits, 1 to 8. False where there is anything else, or another number of them.
inline bool decimal_digits(const char* text, std::size_t size, std::uint64_t& number) {
  std::uint64_t n = (eight_bytes(text) ^ in_all_bytes('0')) << (64 - 8 * size) % 64;
  const bool are = ((n | (n + in_all_bytes(127 - 9))) & in_all_bytes(0x80)) == 0;
  n = n * 10 + (n >> 8);  // pairs of digits, then fours, then all
  number = ((n & 0x000000ff000000ff) * ((std::uint64_t{1000000} << 32) + 100) +
            ((n >> 16) & 0x000000ff000000ff) * ((std::uint64_t{10000} << 32) + 1)) >>
           32;
  return are && size - 1 < 8;
}

}  // namespace leashed
