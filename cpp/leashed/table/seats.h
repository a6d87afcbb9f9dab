// The right to use a table, of one thread at a time. In the child of a fork there is none where
// another thread had one, or a training: the table may be half changed there, and who waited for a
// thread that is no more would wait for ever.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "leashed/base/aligned.h"
#include "leashed/base/forked.h"

namespace leashed {

// Called now and then while something lasts. What it throws ends that, which then has changed
// nothing.
using TableWatch = std::function<void()>;

class Seats {
 public:
  // That trainings may keep; all; and one more, of who tells what was saved (saving.h).
  static constexpr std::size_t kKept = 1152, kAll = kKept + 64, kTracker = kAll;
  static constexpr std::uint64_t kNobody = 0, kKeeper = ~std::uint64_t{0};

  // Of the table of that name.
  explicit Seats(const std::string& name)
      : name_(name), users_(std::make_unique<User[]>(kAll + 1)) {}

  // At the beginning of all that takes one. Throws Error in the child of a fork where that may
  // never have been given back.
  void require_whole() {
    if (forks_.load(std::memory_order_relaxed) != forks()) adopt();
  }
  // Not in such a child.
  bool is_whole() const { return forks_.load(std::memory_order_relaxed) == forks() || was_idle(); }
  bool take(std::size_t number, std::uint64_t by) {
    std::uint64_t nobody = kNobody;
    std::atomic<std::uint64_t>& of = users_[number].of;
    return of.load(std::memory_order_relaxed) == kNobody &&
           of.compare_exchange_strong(nobody, by, std::memory_order_acq_rel,
                                      std::memory_order_relaxed);
  }
  // The number of one that is taken now, of the first so many; none: kAll.
  std::size_t take_any(std::size_t most, std::uint64_t by);
  std::uint64_t user(std::size_t number) const {
    return users_[number].of.load(std::memory_order_relaxed);
  }
  void give_back(std::size_t number) {
    users_[number].of.store(kNobody, std::memory_order_release);
  }

 private:
  friend class Seat;
  void adopt();
  // Whether nobody else had one when the process was forked.
  bool was_idle() const;

  // Whose one is: nobody's, or of the thread of that number, or kept, for threads of a training.
  // Acquire where it is taken, release where it is given back: the next who has it sees what
  // belongs to it as it was left. Release where it is taken, too: pairs with adopt().
  struct alignas(kCacheLine) User {
    std::atomic<std::uint64_t> of{kNobody};
  };

  const std::string name_;
  const std::unique_ptr<User[]> users_;
  // Of the process, when it was made, or found to be whole. Relaxed, but in adopt().
  std::atomic<std::uint64_t> forks_{forks()};
};

class Seat {
 public:
  // Waits while others have all of them.
  explicit Seat(Seats& seats, const TableWatch& watch = {});
  // One of those that trainings keep for long; null: they have all of these. For whatever threads
  // there are, or for the calling one alone, which may fork as it may within a call.
  static std::unique_ptr<Seat> keep(Seats& seats, bool for_caller = false);
  ~Seat();
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  std::size_t number() const { return number_; }

 private:
  Seat(Seats& seats, std::size_t number) : seats_(seats), number_(number) {}

  Seats& seats_;
  const std::size_t number_;
};

}  // namespace leashed
