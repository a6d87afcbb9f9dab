// One vector, with a lock for those who change it and for the monitor.
#pragma once

#include <mutex>
#include <optional>

#include "leashed/base/clock.h"
#include "leashed/discipline/in_place.h"
#include "leashed/sparse/exclusive_runs.h"

namespace leashed {

// A lock taken, and when that was: `asked`, where nobody else held it. A clock is read in as long
// as small models take for their whole update.
struct TimedLock {
  TimedLock(std::mutex& mutex, double asked) : lock(mutex, std::try_to_lock), taken(asked) {
    if (lock) return;
    lock.lock();
    taken = now();
  }
  std::unique_lock<std::mutex> lock;
  double taken;  // seconds on the monotonic clock
};

class Guarded : public InPlace {
 public:
  void with_snapshot(const std::function<void(const float*, std::uint64_t)>& f) override;
  void with_state(const std::function<void(const DisciplineState&)>& f) override;
  std::uint64_t updates() override;
  void transform(std::size_t begin, std::size_t end, const Transform& f) override;
  void look(float* copy, const std::function<void(const float*)>& f) override;
  SparseRuns* sparse_runs() override { return runs_ ? &*runs_ : nullptr; }

 protected:
  explicit Guarded(const DisciplineContext& context);

  std::mutex mutex_;
  std::uint64_t t_;  // changes under the lock

 private:
  // The monitor's copy is taken; its version.
  std::uint64_t copy(std::size_t length);

  std::optional<ExclusiveRuns> runs_;
};

}  // namespace leashed
