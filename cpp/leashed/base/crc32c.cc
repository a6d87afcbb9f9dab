#include "leashed/base/crc32c.h"

#include <array>
#include <cstring>

namespace leashed {
namespace {

constexpr std::array<std::uint32_t, 256> table() {
  std::array<std::uint32_t, 256> entries{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
    entries[i] = crc;
  }
  return entries;
}
constexpr std::array<std::uint32_t, 256> kTable = table();

}  // namespace

std::uint32_t crc32c_plain(const void* bytes, std::size_t size, std::uint32_t before) {
  const auto* p = static_cast<const unsigned char*>(bytes);
  std::uint32_t crc = ~before;
  for (std::size_t i = 0; i < size; ++i) crc = kTable[(crc ^ p[i]) & 0xff] ^ crc >> 8;
  return ~crc;
}

#if defined(__x86_64__)
// In x86-64-v2, without which nothing runs here.
__attribute__((target("sse4.2"))) std::uint32_t crc32c(const void* bytes, std::size_t size,
                                                       std::uint32_t before) {
  const auto* p = static_cast<const unsigned char*>(bytes);
  std::uint64_t crc = ~before;
  for (; size >= 8; p += 8, size -= 8) {
    std::uint64_t word;
    std::memcpy(&word, p, 8);
    crc = __builtin_ia32_crc32di(crc, word);
  }
  auto rest = static_cast<std::uint32_t>(crc);
  for (; size > 0; ++p, --size) rest = __builtin_ia32_crc32qi(rest, *p);
  return ~rest;
}
#else
std::uint32_t crc32c(const void* bytes, std::size_t size, std::uint32_t before) {
  return crc32c_plain(bytes, size, before);
}
#endif

}  // namespace leashed
