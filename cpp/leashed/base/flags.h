// Flags that one thread waits for and any thread may raise. It spins briefly, then sleeps on the
// word, so that who waits costs nothing.
//
// The protocol (models/flags.pml checks it; the steps carry its names)
//   raise   fetch_or of the flag, then notify
//   wait    until the word is not 0: the kernel looks at the word once more before it puts the
//           thread to sleep, so what was raised since is not slept through
//   lower   by the thread that waits, of a flag that it has seen, before it asks for what the flag
//           is raised for. Were it to ask first, the answer could be there already, and be put out
//           unseen: it would sleep for good.
#pragma once

#include <atomic>
#include <cstdint>

#include "leashed/base/aligned.h"
#include "leashed/base/spin.h"

namespace leashed {

class alignas(kCacheLine) Flags {
 public:
  void raise(std::uint32_t flag) {
    // Release: pairs with the acquire in wait; hands on what the flag is raised for. seq_cst, which
    // it is part of: notify_one first looks (seq_cst) whether anybody waits, and without it may do
    // so before the flag is seen.
    word_.fetch_or(flag, std::memory_order_seq_cst);
    word_.notify_one();
  }
  // Those that are raised, once there is one.
  std::uint32_t wait() const {
    // Acquire, here and below: pairs with the release in raise.
    if (!spin_until([this] { return word_.load(std::memory_order_acquire) != 0; })) {
      word_.wait(0, std::memory_order_acquire);
    }
    return word_.load(std::memory_order_acquire);
  }
  // Whether any is. Relaxed: for who has a lock in common with whoever raises them.
  bool any() const { return word_.load(std::memory_order_relaxed) != 0; }
  // Relaxed: who raises it again does so because of something that this thread says afterwards.
  void lower(std::uint32_t flag) { word_.fetch_and(~flag, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint32_t> word_{0};
};

}  // namespace leashed
