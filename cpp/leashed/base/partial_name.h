// Where a file is written before it takes its place.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace leashed {

// Beside it, and nobody else's, of this process or another.
inline std::string partial_name(const std::string& path) {
  static std::atomic<std::uint64_t> count{0};  // relaxed: distinct numbers are all that is asked
  return path + ".partial-" + std::to_string(getpid()) + "-" +
         std::to_string(count.fetch_add(1, std::memory_order_relaxed));
}

}  // namespace leashed
