// Processes told apart for good: pids are used again, a pid together with its start time is not.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace leashed {

// In one word, so that one atomic instruction records it: the pid (22 bits, Linux's most) under the
// start time (42 bits, clock ticks since boot). Never 0.
using ProcessId = std::uint64_t;

inline constexpr int kPidBits = 22;
inline pid_t pid_of(ProcessId id) {
  return static_cast<pid_t>(id & ((ProcessId{1} << kPidBits) - 1));
}

ProcessId this_process();
// False only where the process can touch no memory any more; one that has ended and whose parent
// has not asked (a zombie) counts as gone.
bool is_alive(ProcessId id);

// Pids mean something within one pid namespace (a container) only. The number of this one.
std::uint64_t pid_namespace();

}  // namespace leashed
