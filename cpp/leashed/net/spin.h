// Waiting for what comes soon, without falling asleep: that and being woken take longer than most
// answers between processes of one machine.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "leashed/base/clock.h"

namespace leashed {

class Spin {
 public:
  // Until ready() or until sleep() comes back. It asks for as long as falling asleep and being
  // woken take, twice; not after a wait that took longer. Who else wants the processor has it.
  template <class Ready, class Sleep>
  void wait(const Ready& ready, const Sleep& sleep) {
    const double begin = now();
    const bool there = soon_ && asked(ready);
    if (!there) sleep();
    // (Somebody else may have had the processor for long.)
    soon_ = there == soon_ && now() - begin < 2 * kSpin;
  }
  // Whether it is, asked for as long as that.
  template <class Ready>
  static bool soon(const Ready& ready) {
    return ready() || asked(ready);
  }

 private:
  static constexpr double kSpin = 50e-6;  // seconds
  // A turn that lasts went to somebody else, who may be whom this waits for: no more than kTurn of
  // it counts. Who keeps the processor for longer than kOthers is no partner of a ring.
  static constexpr double kTurn = 2e-6, kOthers = 500e-6;

  template <class Ready>
  static bool asked(const Ready& ready) {
    // (The other side may run where this process may not.)
    static const bool alone = sysconf(_SC_NPROCESSORS_ONLN) == 1;
    if (alone) return false;
    double spent = 0;
    for (double before = now(); spent < kSpin;) {
      sched_yield();
      if (ready()) return true;
      const double after = now(), turn = after - before;
      if (turn > kOthers) return false;
      spent += std::min(turn, kTurn);
      before = after;
    }
    return false;
  }

  bool soon_ = true;
};

}  // namespace leashed
