// CRC-32C (Castagnoli; RFC 3720, B.4), of what goes over a wire.
#pragma once

#include <cstddef>
#include <cstdint>

namespace leashed {

// Of the bytes, going on from the checksum of those before them.
std::uint32_t crc32c(const void* bytes, std::size_t size, std::uint32_t before = 0);
// The same without the instruction for it.
std::uint32_t crc32c_plain(const void* bytes, std::size_t size, std::uint32_t before = 0);

}  // namespace leashed
