#pragma once

#include <cstdint>

namespace leashed {

// Of this process, in bytes: the resident set now, and the largest it ever was.
std::uint64_t resident_bytes();
std::uint64_t peak_resident_bytes();

}  // namespace leashed
