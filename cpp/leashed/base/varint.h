// Numbers in as few bytes as they need: 7 bits a byte, the lowest first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace leashed {

inline constexpr std::size_t kVarint = 10;  // bytes, at most

inline std::byte* put_varint(std::byte* to, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) *to++ = static_cast<std::byte>(number | 0x80);
  *to++ = static_cast<std::byte>(number);
  return to;
}

// byte() is the next one. None: so many bytes are no number.
template <class Byte>
std::optional<std::uint64_t> take_varint(const Byte& byte) {
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < kVarint; ++i) {
    const std::uint64_t part = byte();
    all |= (part & 0x7f) << 7 * i;
    if (part < 0x80) return all;
  }
  return std::nullopt;
}

}  // namespace leashed
