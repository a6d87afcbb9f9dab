// Which processors a process runs on.
#pragma once

#include <sched.h>

#include <vector>

#include "loopback.h"

namespace leashed {

// Where two processes run decides what they cost each other: on one processor a round trip is two
// switches, on two it wakes one that sleeps, and bytes go from one cache to another. So both are
// measured.
inline void run_on(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  need(sched_setaffinity(0, sizeof set, &set) == 0, "sched_setaffinity");
}

// Those that this process may run on.
inline std::vector<int> allowed_processors() {
  cpu_set_t allowed;
  need(sched_getaffinity(0, sizeof allowed, &allowed) == 0, "sched_getaffinity");
  std::vector<int> processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &allowed)) processors.push_back(i);
  }
  return processors;
}

}  // namespace leashed
