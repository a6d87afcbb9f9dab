#include "leashed/engine/pause.h"

#include <algorithm>
#include <chrono>

#include "leashed/base/clock.h"

namespace leashed {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);  // between two looks at the stop flag

}  // namespace

void Pause::ask() {
  const std::lock_guard lock(mutex_);
  asked_.store(true, std::memory_order_relaxed);
}

bool Pause::holds(std::uint64_t next) const {
  if (!judges_) return false;
  const std::uint64_t reached = next == kAny ? reached_.load(std::memory_order_relaxed) : next;
  return reached > judged_.load(std::memory_order_relaxed);
}

void Pause::reach(std::uint64_t next) {
  const std::lock_guard lock(mutex_);
  reached_.store(std::max(next, reached_.load(std::memory_order_relaxed)),
                 std::memory_order_relaxed);
}

double Pause::pass(const StopFlag& stop, std::uint64_t next) {
  if (!asked() && !holds(next)) return 0;
  const double start = now();
  std::unique_lock lock(mutex_);
  if (!asked() && !holds(next)) return 0;  // it has ended meanwhile
  do {
    const std::uint64_t before = pauses_;
    const bool at_end = holds(next);
    ++waiting_;
    at_end_ += at_end;
    if (all_wait()) {
      lock.unlock();
      tell();
      lock.lock();
    }
    while (pauses_ == before && !stop.stopped()) over_.wait_for(lock, kLook);
    if (pauses_ != before) continue;
    --waiting_;
    at_end_ -= at_end;
  } while (holds(next) && !stop.stopped());
  return now() - start;
}

void Pause::leave() {
  std::unique_lock lock(mutex_);
  --running_;
  const bool complete = running_ > 0 && all_wait();
  lock.unlock();
  if (complete) tell();
}

bool Pause::complete() {
  const std::lock_guard lock(mutex_);
  return running_ > 0 && all_wait();
}

bool Pause::still() {
  const std::lock_guard lock(mutex_);
  return !wake_ || running_ == 0 || all_wait();
}

bool Pause::at_end() {
  const std::lock_guard lock(mutex_);
  return running_ > 0 && at_end_ == running_;
}

void Pause::go_on(bool judged) {
  {
    const std::lock_guard lock(mutex_);
    asked_.store(false, std::memory_order_relaxed);
    ++pauses_;
    if (judged) judged_.fetch_add(1, std::memory_order_relaxed);
    waiting_ = at_end_ = 0;  // who wakes late waits no more: the next pause may be asked for before
  }
  over_.notify_all();
}

void Pause::tell() {
  if (wake_) wake_();
}

}  // namespace leashed
