// Waiting for what comes soon, without falling asleep: that and being woken take longer than most
// answers between processes of one machine.
#pragma once

#include <sched.h>
#include <unistd.h>

#include "leashed/base/clock.h"

namespace leashed {

class Spin {
 public:
  // Until ready() or until sleep() comes back. It asks for as long as falling asleep and being
  // woken take, twice; not after a wait that took longer. Who else wants the processor has it.
  template <class Ready, class Sleep>
  void wait(const Ready& ready, const Sleep& sleep) {
    const double begin = now();
    const bool there = soon_ && asked(ready, begin + kSpin);
    if (!there) sleep();
    // (Somebody else may have had the processor for long.)
    soon_ = there == soon_ && now() - begin < 2 * kSpin;
  }
  // Whether it is, for as long as that.
  template <class Ready>
  static bool soon(const Ready& ready) {
    return ready() || asked(ready, now() + kSpin);
  }

 private:
  static constexpr double kSpin = 50e-6;  // seconds

  template <class Ready>
  static bool asked(const Ready& ready, double end) {
    // (The other side may run where this process may not.)
    static const bool alone = sysconf(_SC_NPROCESSORS_ONLN) == 1;
    if (alone) return false;
    do {
      sched_yield();
      if (ready()) return true;
    } while (now() < end);
    return false;
  }

  bool soon_ = true;
};

}  // namespace leashed
