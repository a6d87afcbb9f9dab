// Virtual time in whole nanoseconds and in seconds, and the seeds of what is drawn.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace leashed {

// Of what is drawn, so that no two repeat each other.
enum Purpose : std::uint64_t { kCompute = 1, kUpdate = 2, kCopy = 3, kCrash = 4, kReturn = 5 };

inline std::uint64_t seed_of(std::uint64_t seed, Purpose purpose) {
  return seed ^ (purpose * 0x9E3779B97F4A7C15);
}

inline double in_seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

inline std::int64_t in_ns(double seconds) {
  return seconds < 9e9 ? std::llround(seconds * 1e9) : std::numeric_limits<std::int64_t>::max();
}

// That much later; the end of time is not passed.
inline std::int64_t after(std::int64_t ns, std::int64_t duration) {
  constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();
  return ns > kEnd - duration ? kEnd : ns + duration;
}

}  // namespace leashed
