#include "leashed/engine/pause.h"

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

double Pause::pass(const StopFlag& stop) {
  if (!asked_.load(std::memory_order_relaxed)) return 0;
  const double start = now();
  std::unique_lock lock(mutex_);
  if (!asked_.load(std::memory_order_relaxed)) return 0;  // it has ended meanwhile
  const std::uint64_t before = pauses_;
  ++waiting_;
  if (all_wait()) {
    lock.unlock();
    tell();
    lock.lock();
  }
  while (pauses_ == before && !stop.stopped()) over_.wait_for(lock, kLook);
  if (pauses_ == before) --waiting_;
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
  return running_ == 0 || all_wait();
}

void Pause::go_on() {
  {
    const std::lock_guard lock(mutex_);
    asked_.store(false, std::memory_order_relaxed);
    ++pauses_;
    waiting_ = 0;  // who wakes late waits no more: the next pause may be asked for before
  }
  over_.notify_all();
}

void Pause::tell() {
  if (wake_) wake_();
}

}  // namespace leashed
