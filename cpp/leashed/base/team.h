// OpenMP as this project uses it: teams of threads. ThreadSanitizer cannot see inside libgomp, so
// where it is on, the order in which a team starts and ends is told to it by hand.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "leashed/base/error.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define LEASHED_TSAN_RELEASE(p) __tsan_release(p)
#define LEASHED_TSAN_ACQUIRE(p) __tsan_acquire(p)
#else
#define LEASHED_TSAN_RELEASE(p) static_cast<void>(p)
#define LEASHED_TSAN_ACQUIRE(p) static_cast<void>(p)
#endif

namespace leashed {

// The most threads that a team can have and still run all at once.
inline std::size_t largest_team() {
  return static_cast<std::size_t>(
      std::max(1, std::min(omp_get_num_procs(), omp_get_thread_limit())));
}

// Runs f(rank) on exactly `threads` threads at once, the caller being rank 0. f must not throw.
// Throws Error where OpenMP gives fewer threads (OMP_THREAD_LIMIT). Not instrumented itself: what
// the compiler hands to the team's threads passes through libgomp before the first acquire; f is.
template <class F>
__attribute__((noinline, no_sanitize("thread"))) void run_team(std::size_t threads, F&& f) {
  omp_set_dynamic(0);
  std::size_t given = threads;
  char order = 0;
  LEASHED_TSAN_RELEASE(&order);
#pragma omp parallel num_threads(static_cast <int>(threads))
  {
    LEASHED_TSAN_ACQUIRE(&order);
    const auto rank = static_cast<std::size_t>(omp_get_thread_num());
    if (static_cast<std::size_t>(omp_get_num_threads()) == threads) {
      f(rank);
    } else if (rank == 0) {
      given = static_cast<std::size_t>(omp_get_num_threads());
    }
    LEASHED_TSAN_RELEASE(&order);
  }
  LEASHED_TSAN_ACQUIRE(&order);
  if (given != threads) {
    throw Error("threads is " + std::to_string(threads) + ", but OpenMP gave only " +
                std::to_string(given) + "; raise or unset OMP_THREAD_LIMIT");
  }
}

}  // namespace leashed
