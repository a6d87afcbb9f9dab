// When a run ends, and what it is called then.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <string_view>

#include "leashed/base/aligned.h"

namespace leashed {

// At least one is given. Losses are of the whole training set, as the monitor evaluates it.
struct StopRules {
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  double loss_fraction = 0;  // ε: loss ≤ ε · initial loss; 0: none
  double loss = -std::numeric_limits<double>::infinity();
  std::uint64_t updates = kNone;  // exactly so many are published
  std::uint64_t batches = kNone;  // so many batches are drawn (epochs); in lockstep, whole steps
  double seconds = std::numeric_limits<double>::infinity();
  double divergence = std::numeric_limits<double>::infinity();  // loss ≥ divergence · initial loss

  bool wants_loss() const {
    return loss_fraction > 0 || loss > -std::numeric_limits<double>::infinity();
  }
};

enum class StopReason : int {
  none,
  loss_fraction,
  loss,
  updates,
  epochs,
  seconds,
  divergence,
  not_finite,
  interrupted,
  error
};

// The run's one stop flag and the first reason given.
class StopFlag {
 public:
  void stop(StopReason why) {
    finish(why);
    // Relaxed: tells the workers to stop, hands nothing over.
    flag_.store(true, std::memory_order_relaxed);
  }
  // Gives the reason, but lets the workers that have a gradient under way publish it.
  void finish(StopReason why) {
    int expected = static_cast<int>(StopReason::none);
    // Relaxed: read after the workers have been joined.
    reason_.compare_exchange_strong(expected, static_cast<int>(why), std::memory_order_relaxed);
  }
  bool stopped() const { return flag_.load(std::memory_order_relaxed); }
  const std::atomic<bool>& flag() const { return flag_; }
  StopReason reason() const {
    return static_cast<StopReason>(reason_.load(std::memory_order_relaxed));
  }

 private:
  alignas(kCacheLine) std::atomic<bool> flag_{false};
  std::atomic<int> reason_{0};
};

std::string_view stop_reason_name(StopReason reason);

}  // namespace leashed
