// Waiting briefly before one sleeps: who waits for a thread that runs is soon through.
#pragma once

#include <thread>

#include "leashed/base/clock.h"

namespace leashed {

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Asks ready() again and again; true when it says so, false after a while. The thread that is
// waited for may want this very processor, so it is offered again and again.
template <class F>
bool spin_until(F&& ready) {
  constexpr double kSpin = 20e-6;  // seconds: to put a thread to sleep and wake it takes more
  constexpr int kPauses = 4;
  for (const double start = now(); now() - start < kSpin; std::this_thread::yield()) {
    for (int i = 0; i < kPauses; ++i) {
      if (ready()) return true;
      relax();
    }
  }
  return false;
}

}  // namespace leashed
