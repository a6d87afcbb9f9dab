// A barrier that spins briefly and then sleeps: who waits for a thread that runs is soon through,
// and who waits for one that has no processor leaves it the own one.
//
// A round ends when every thread that takes part has arrived. `missing_` counts down the arrivals;
// who brings it to 0 prepares the next round and only then ends this one by changing `round_`,
// which the others wait on. No thread can be a round ahead of another: it would have had to arrive,
// and `missing_` is set anew before anybody is let through. A thread that waits reads `round_`
// before it arrives, so the round cannot end unseen; a round's number comes again after 2³² rounds,
// in all of which it would have had to take part.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "leashed/base/aligned.h"
#include "leashed/base/relaxed.h"
#include "leashed/base/spin.h"

namespace leashed {

class Barrier {
 public:
  explicit Barrier(std::size_t threads)
      : threads_(static_cast<std::uint32_t>(threads)), missing_(threads_.load(kRelaxed)) {}

  // Until all have arrived. Everything that any of them did before comes before everything that
  // they do after.
  void arrive_and_wait() {
    arrive_and_wait([] {});
  }
  // The last to arrive calls `last` before anyone goes on; true for that one.
  template <class F>
  bool arrive_and_wait(F&& last) {
    // Relaxed: it cannot change before this thread has arrived.
    const std::uint32_t round = round_.load(kRelaxed);
    if (arrive()) {
      std::forward<F>(last)();
      end(round);
      return true;
    }
    wait(round);
    return false;
  }
  // Arrives for the last time, and waits for nobody; the others do not wait for this thread again.
  void arrive_and_drop() {
    const std::uint32_t round = round_.load(kRelaxed);
    // Relaxed: whoever ends a round reads it after all arrivals, which come after this.
    threads_.fetch_sub(1, kRelaxed);
    if (arrive()) end(round);
  }

 private:
  // True for the last of the round. Release: what this thread did is handed to the last; acquire:
  // the last takes over what all others did (each arrival continues the others' release sequence).
  bool arrive() { return missing_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

  void end(std::uint32_t round) {
    missing_.store(threads_.load(kRelaxed), kRelaxed);  // seen through round_ by who arrives next
    // Release: pairs with the acquire in wait; hands on what all threads did. seq_cst, which it is
    // part of: notify_all first looks (seq_cst) whether anybody waits, and without it may do so
    // before the new round is seen: then who goes to sleep just now is not woken.
    round_.store(round + 1, std::memory_order_seq_cst);
    round_.notify_all();
  }

  void wait(std::uint32_t round) {
    // Acquire, here and below: pairs with the release in end.
    const auto ended = [&] { return round_.load(std::memory_order_acquire) != round; };
    if (!spin_until(ended)) round_.wait(round, std::memory_order_acquire);
  }

  alignas(kCacheLine) std::atomic<std::uint32_t> threads_;  // that take part
  std::atomic<std::uint32_t> missing_;                      // arrivals of this round
  alignas(kCacheLine) std::atomic<std::uint32_t> round_{0};
};

}  // namespace leashed
