// Whether a participant is still there, as the kernel sees it.
//
// Its sign is an address range that it maps from the shared file, without memory and far past the
// file's end, at an offset that nobody else ever has. The range goes with the process, however that
// ends, and when the process calls exec; a forked child does not get it. It is there exactly as
// long as the process can touch what it shares, and whoever may ask finds it in /proc/<pid>/maps.
// (A start time tells processes apart, but not a process from what it was before exec.)
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "leashed/vector/shared_memory.h"

namespace leashed {

// In one word, so that one atomic instruction records it: the pid (22 bits, Linux's most) and a
// number (42 bits) that comes once in the life of the shared memory. Never 0.
using ParticipantId = std::uint64_t;

inline constexpr int kPidBits = 22;
inline pid_t pid_of(ParticipantId id) {
  return static_cast<pid_t>(id & ((ParticipantId{1} << kPidBits) - 1));
}

// Of this process, from construction to destruction.
class Presence {
 public:
  Presence(const SharedMemory& memory, std::uint64_t number);
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;
  ~Presence();

  ParticipantId id() const { return id_; }

 private:
  const ParticipantId id_;
  void* const range_;
};

// False only where the participant can touch the memory no more; what cannot be found out (/proc
// hides it) counts as present.
bool is_present(const SharedMemory& memory, ParticipantId id);

// Pids mean something within one pid namespace (a container) only. The number of this one.
std::uint64_t pid_namespace();

}  // namespace leashed
