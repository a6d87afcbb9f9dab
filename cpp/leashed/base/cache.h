#pragma once

#include <unistd.h>

#include <cstddef>

namespace leashed {

// Whether so much memory does not fit the last-level cache (32 MiB where the system does not tell).
inline bool exceeds_caches(std::size_t bytes) {
  static const std::size_t last_level = [] {
    const long told = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return told > 0 ? static_cast<std::size_t>(told) : std::size_t{32} << 20;
  }();
  return bytes > last_level;
}

}  // namespace leashed
