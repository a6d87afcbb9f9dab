// All workers between two of their steps, so that what is saved is of one moment: parameters, rows
// of tables, statistics.
//
// Where they fall due by updates, it is with the first whose number is a multiple of `every`: who
// claims it asks, and waits; the others wait when they have made the step that they are in. Once
// all that have not ended wait, the pause is complete, and the monitor does what is to be done and
// lets them go on. In lockstep all see at the same step that one is due, so that nobody waits for
// others in a step.
//
// Where passes over the data are judged, nobody asks: whoever's next batch is of a later pass than
// the one to be judged waits until that is. So however short passes are, and however long it takes
// to judge one, each is judged at a moment of its own, when nothing of it is left to be done and
// nothing of the next one has been.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>

#include "leashed/engine/stop.h"

namespace leashed {

class Pause {
 public:
  // A pass of who has no batch: he waits where somebody waits for the end of one.
  static constexpr std::uint64_t kAny = std::numeric_limits<std::uint64_t>::max();

  // every: updates; 0: none falls due by their number. judges: passes are judged.
  Pause(std::size_t workers, std::uint64_t every, bool judges = false)
      : every_(every), judges_(judges), running_(workers) {}
  Pause(const Pause&) = delete;

  // A worker's, between two steps: whether one falls due before updates [first, first + count).
  bool due(std::uint64_t first, std::uint64_t count = 1) const {
    return every_ > 0 && (first / every_ != (first + count - 1) / every_ || first % every_ == 0);
  }
  bool judges() const { return judges_; }
  // Anybody's: there is to be one.
  void ask();
  // A worker's likewise, whose next batch is of that pass, from the run's beginning: waits where
  // one is asked for, until it is over, and until the passes before have been judged; or the run is
  // stopped. Returns the seconds.
  double pass(const StopFlag& stop, std::uint64_t next = 0);
  // Whether that pass is to wait for those before to be judged.
  bool holds(std::uint64_t next) const;
  // Who has a batch of that pass is about to wait: those without one are to be told, and then do
  // so.
  void reach(std::uint64_t next);
  // A worker's, that has ended.
  void leave();

  // The monitor's.
  bool complete();
  // Whether it is, or no worker has begun, or all have ended.
  bool still();
  // Of one that is complete: whether it was asked for, and whether all wait for the end of a pass.
  bool asked() const { return asked_.load(std::memory_order_relaxed); }
  bool at_end();
  void go_on(bool judged = false);
  // Called whenever one is complete, by a worker. Given before any has begun.
  void on_complete(std::function<void()> wake) { wake_ = std::move(wake); }

 private:
  bool all_wait() const { return waiting_ == running_; }
  void tell();

  const std::uint64_t every_;
  const bool judges_;
  std::function<void()> wake_;
  std::mutex mutex_;
  std::condition_variable over_;
  // Written under the lock. Relaxed: tells workers to come and wait; what the monitor then reads,
  // the lock hands over.
  std::atomic<bool> asked_{false};
  // Likewise: passes that have been judged, and the latest that somebody has a batch of.
  std::atomic<std::uint64_t> judged_{0}, reached_{0};
  // Under the lock.
  std::size_t running_, waiting_ = 0;
  std::size_t at_end_ = 0;    // of those who wait
  std::uint64_t pauses_ = 0;  // that are over
};

}  // namespace leashed
