// Work in parts that one thread does, and that others who wait for it take part in meanwhile: as
// many as come, and as late as they come. Nobody is waited for but for the parts that he has begun.
//
// The protocol (models/joint_work.pml names the same steps)
//   open    what is to be done is written, then the word: a number of the work and how many parts
//           are left to begin
//   begin   compare-and-swap of the word to one part less; who has it does that part. The number
//           keeps who has read the word of former work from beginning a part of this one unseen;
//           it comes again after 2³² works, all of them between a load and its swap. (What is to be
//           done is read after the swap; so this would do no harm either.)
//   end     the parts that are not done are counted down
//   wait    whoever opened, until there are 0 of them: so nobody looks at what is to be done when
//           it is written anew
#pragma once

#include <atomic>
#include <cstdint>

#include "leashed/base/aligned.h"
#include "leashed/base/spin.h"

namespace leashed {

class JointWork {
 public:
  // By one thread at a time: part(0) … part(parts − 1), each once, here or by whoever helps, and
  // all done when it returns. ask() is called when others may help. Neither throws.
  template <class Part, class Ask>
  void run(std::uint32_t parts, const Part& part, const Ask& ask) {
    part_ = &part;
    call_ = [](const void* work, std::uint32_t i) { (*static_cast<const Part*>(work))(i); };
    // Relaxed: the word hands it on.
    undone_.store(parts, std::memory_order_relaxed);
    const std::uint64_t number = (word_.load(std::memory_order_relaxed) >> 32) + 1;
    // Release: pairs with the acquire in help; hands on what is to be done.
    word_.store(number << 32 | parts, std::memory_order_release);
    ask();
    help();
    // Acquire: pairs with the release of each part's end; hands over what it has done.
    const auto done = [this] { return undone_.load(std::memory_order_acquire) == 0; };
    if (spin_until(done)) return;
    for (std::uint32_t left; (left = undone_.load(std::memory_order_acquire)) != 0;) {
      undone_.wait(left, std::memory_order_acquire);
    }
  }

  // Takes part until no part is left to begin: at once, where nothing is to be done.
  void help() {
    // Relaxed: what is read through it, it is swapped for.
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    while (static_cast<std::uint32_t>(word) != 0) {
      // Acquire: pairs with the release in run.
      if (!word_.compare_exchange_weak(word, word - 1, std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
        continue;
      }
      call_(part_, static_cast<std::uint32_t>(word) - 1);
      // Release: hands on what the part has done. seq_cst, which it is part of: notify_one first
      // looks (seq_cst) whether anybody waits.
      if (undone_.fetch_sub(1, std::memory_order_seq_cst) == 1) undone_.notify_one();
      word = word_.load(std::memory_order_relaxed);
    }
  }

 private:
  // Of the present work; written before the word, by who opens it.
  const void* part_ = nullptr;
  void (*call_)(const void* work, std::uint32_t part) = nullptr;
  alignas(kCacheLine) std::atomic<std::uint64_t> word_{0};
  alignas(kCacheLine) std::atomic<std::uint32_t> undone_{0};
};

}  // namespace leashed
