// When memory that somebody may still be reading can be used for something else. Whoever reads it
// without a lock says from which epoch on everything he reads has been found; what is taken out of
// reach then gets the number of an epoch that begins after, and is free once nobody reads anything
// older.
//
//   reader:  n = look(); find ...; read ...; announce(n'), with the n' of what he reads by then
//   writer:  take out of reach; n = begin(); ... oldest() >= n: nobody has it any more
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "leashed/base/aligned.h"

namespace leashed {

class Epochs {
 public:
  // Of oldest(): nobody holds anything.
  static constexpr std::uint64_t kLeft = std::numeric_limits<std::uint64_t>::max();

  // For readers 0 to readers − 1, none of which has joined.
  explicit Epochs(std::size_t readers) : announced_(std::make_unique<Announced[]>(readers)) {}

  // A reader begins to look up: from here on nothing that he might find is freed.
  void join(std::size_t reader) {
    announced_[reader].number.store(0, std::memory_order_relaxed);
    std::size_t used = used_.load(std::memory_order_relaxed);
    while (used <= reader &&
           !used_.compare_exchange_weak(used, reader + 1, std::memory_order_relaxed)) {
    }
    // Acquire and release: a writer whose begin() comes later sees the announcement, and of what a
    // writer has taken out of reach before, this reader sees nothing.
    now_.fetch_add(0, std::memory_order_acq_rel);
  }
  // The number to announce later for what is looked up after this. Acquire: pairs with begin();
  // what was out of reach before that epoch is not found.
  std::uint64_t look() const { return now_.load(std::memory_order_acquire); }
  // All that he holds was looked up after that look(). Release: pairs with oldest(); what he did
  // with older things is over.
  void announce(std::size_t reader, std::uint64_t number) {
    announced_[reader].number.store(number, std::memory_order_release);
  }
  // He holds nothing, and looks nothing up until he joins again.
  void leave(std::size_t reader) { announce(reader, kLeft); }

  // A new epoch, in which what was taken out of reach before is not found any more; its number.
  // Release: pairs with look(). Acquire, and never a plain store: what another writer has released
  // with an earlier number goes on with this one.
  std::uint64_t begin() { return now_.fetch_add(1, std::memory_order_acq_rel) + 1; }
  // Of what somebody holds, the oldest was looked up in this epoch: what left before, or in it, is
  // free. Acquire: pairs with announce().
  std::uint64_t oldest() const {
    std::uint64_t oldest = kLeft;
    const std::size_t used = used_.load(std::memory_order_relaxed);
    for (std::size_t i = 0; i < used; ++i) {
      oldest = std::min(oldest, announced_[i].number.load(std::memory_order_acquire));
    }
    return oldest;
  }

  // In which a reader finds things and uses them.
  class Section {
   public:
    Section(Epochs& epochs, std::size_t reader) : epochs_(epochs), reader_(reader) {
      epochs_.join(reader_);
      epochs_.announce(reader_, epochs_.look());
    }
    ~Section() { epochs_.leave(reader_); }
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;

   private:
    Epochs& epochs_;
    const std::size_t reader_;
  };

 private:
  struct alignas(kCacheLine) Announced {
    std::atomic<std::uint64_t> number{kLeft};
  };

  alignas(kCacheLine) std::atomic<std::uint64_t> now_{1};
  // Readers from here on have never joined. Relaxed: seen as an announcement is.
  std::atomic<std::size_t> used_{0};
  const std::unique_ptr<Announced[]> announced_;
};

}  // namespace leashed
