// Where a test may end the process, after each step of a protocol that must survive that, or throw,
// where memory is allocated.
// In the library as it is installed there is nothing.
#pragma once

namespace leashed {

#ifdef LEASHED_FAULTS
inline void (*fault_hook)(const char* step) = nullptr;
inline void fault_point(const char* step) {
  if (fault_hook) fault_hook(step);
}
#else
inline constexpr void fault_point(const char*) {}
#endif

}  // namespace leashed
