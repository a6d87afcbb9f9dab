#include "leashed/table/seats.h"

#include <chrono>
#include <thread>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"

namespace leashed {

// A shard is locked only by who has a seat.
bool Seats::was_idle() const {
  const std::uint64_t forker = forking_thread();
  for (std::size_t i = 0; i <= kAll; ++i) {
    const std::uint64_t whose = users_[i].of.load(std::memory_order_acquire);
    if (whose != kNobody && whose != forker) return false;
  }
  return true;
}

// Nothing is changed but the number. So any threads of the child may come at once: each finds what
// the parent left, or else a seat that another one has taken since. That one has stored the number
// before: the store is seen by who sees the seat, since that is taken with release, and loaded with
// acquire in was_idle().
void Seats::adopt() {
  const std::uint64_t now = forks();
  if (was_idle()) return forks_.store(now, kRelaxed);
  if (forks_.load(kRelaxed) == now) return;
  throw Error("table '" + name_ +
              "' was in use by another thread, or by a training, when this process was forked, and "
              "may be half changed here; fork while nobody uses it, or start the process by "
              "\"spawn\", and load a table there from a file");
}

std::size_t Seats::take_any(std::size_t most, std::uint64_t by) {
  require_whole();
  for (std::size_t number = 0; number < most; ++number) {
    if (take(number, by)) return number;
  }
  return kAll;
}

Seat::Seat(Seats& seats, const TableWatch& watch)
    : Seat(seats, [&] {
        std::size_t number;
        while ((number = seats.take_any(Seats::kAll, thread_number())) == Seats::kAll) {
          if (watch) watch();
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
        return number;
      }()) {}

std::unique_ptr<Seat> Seat::keep(Seats& seats, bool for_caller) {
  const std::size_t number =
      seats.take_any(Seats::kKept, for_caller ? thread_number() : Seats::kKeeper);
  return std::unique_ptr<Seat>(number == Seats::kAll ? nullptr : new Seat(seats, number));
}

Seat::~Seat() {
  // In the child of a fork the threads that had it are no more, wherever they were.
  if (seats_.user(number_) == Seats::kKeeper && seats_.forks_.load(kRelaxed) != forks()) return;
  seats_.give_back(number_);
}

}  // namespace leashed
