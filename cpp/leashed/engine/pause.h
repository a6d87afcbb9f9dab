// All workers between two of their steps, so that what is saved is of one moment: parameters, rows
// of tables, statistics.
//
// Where they fall due by updates, it is with the first whose number is a multiple of `every`: who
// claims it asks, and waits; the others wait when they have made the step that they are in. Once
// all that have not ended wait, the pause is complete, and the monitor does what is to be done and
// lets them go on. In lockstep all see at the same step that one is due, so that nobody waits for
// others in a step.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

#include "leashed/engine/stop.h"

namespace leashed {

class Pause {
 public:
  Pause(std::size_t workers, std::uint64_t every) : every_(every), running_(workers) {}
  Pause(const Pause&) = delete;

  // A worker's, between two steps: whether one falls due before updates [first, first + count).
  bool due(std::uint64_t first, std::uint64_t count = 1) const {
    return first / every_ != (first + count - 1) / every_ || first % every_ == 0;
  }
  // Anybody's: there is to be one.
  void ask();
  // A worker's likewise: waits where one is asked for, until it is over or the run is stopped.
  // Returns the seconds.
  double pass(const StopFlag& stop);
  // A worker's, that has ended.
  void leave();

  // The monitor's.
  bool complete();
  // Whether it is, or all workers have ended.
  bool still();
  void go_on();
  // Called whenever one is complete, by a worker. Given before any has begun.
  void on_complete(std::function<void()> wake) { wake_ = std::move(wake); }

 private:
  bool all_wait() const { return asked_.load(std::memory_order_relaxed) && waiting_ == running_; }
  void tell();

  const std::uint64_t every_;
  std::function<void()> wake_;
  std::mutex mutex_;
  std::condition_variable over_;
  // Written under the lock. Relaxed: tells workers to come and wait; what the monitor then reads,
  // the lock hands over.
  std::atomic<bool> asked_{false};
  // Under the lock.
  std::size_t running_, waiting_ = 0;
  std::uint64_t pauses_ = 0;  // that are over
};

}  // namespace leashed
