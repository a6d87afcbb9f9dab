#pragma once

#include <unistd.h>

#include <cstddef>
#include <fstream>

namespace leashed {

// Bytes of the last-level cache that one core can reach: what Linux lists for processor 0 (virtual
// machines often give sysconf the sum over the host's), else sysconf's word, else 32 MiB.
inline std::size_t last_level_cache() {
  std::size_t kibibytes = 0;
  if (std::ifstream("/sys/devices/system/cpu/cpu0/cache/index3/size") >> kibibytes) {
    return kibibytes << 10;
  }
  const long told = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return told > 0 ? static_cast<std::size_t>(told) : std::size_t{32} << 20;
}

inline bool exceeds_caches(std::size_t bytes) {
  static const std::size_t cache = last_level_cache();
  return bytes > cache;
}

}  // namespace leashed
