#include "leashed/modes/turns.h"

namespace leashed {

Turns::Turn Turns::take() {
  std::unique_lock lock(mutex_);
  if (stop_.stopped()) return nullptr;
  if (free_ > 0) {
    --free_;
    return Turn(this);
  }
  Waiter self;
  const auto place = waiting_.insert(waiting_.end(), &self);
  self.woken.wait(lock, [&] { return self.has || stop_.stopped(); });
  if (self.has) return Turn(this);
  waiting_.erase(place);
  return nullptr;
}

void Turns::stop() {
  const std::lock_guard lock(mutex_);
  for (Waiter* const one : waiting_) one->woken.notify_one();
}

// Under the lock to the end: a waiter that wakes is gone soon.
void Turns::back() {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) {
    ++free_;
    return;
  }
  Waiter& next = *waiting_.front();
  waiting_.pop_front();
  next.has = true;
  next.woken.notify_one();
}

}  // namespace leashed
