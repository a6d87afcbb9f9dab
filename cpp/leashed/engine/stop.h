// When a run ends, and what it is called then.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "leashed/base/aligned.h"

namespace leashed {

// At least one is given. Losses are of the training set, as the monitor evaluates it.
struct StopRules {
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  double loss_fraction = 0;  // ε: loss ≤ ε · initial loss; 0: none
  // Larger ε, which end nothing: when each was reached is found.
  std::vector<double> milestones = {};
  double loss = -std::numeric_limits<double>::infinity();
  std::uint64_t updates = kNone;  // exactly so many are published
  std::uint64_t batches = kNone;  // so many batches are drawn (epochs); in lockstep, whole steps
  double seconds = std::numeric_limits<double>::infinity();
  double divergence = std::numeric_limits<double>::infinity();  // loss ≥ divergence · initial loss
  std::size_t rows = 0;  // that the training set is evaluated by, at most (Evaluator); 0: all

  bool wants_loss() const {
    return loss_fraction > 0 || loss > -std::numeric_limits<double>::infinity();
  }
  // Those asked for, largest first; the last ends the run.
  std::vector<double> losses(double initial) const {
    std::vector<double> losses;
    if (!wants_loss()) return losses;
    for (const double fraction : milestones) losses.push_back(fraction * initial);
    losses.push_back(loss_fraction > 0 ? std::max(loss_fraction * initial, loss) : loss);
    std::sort(losses.begin(), losses.end(), std::greater<>());
    return losses;
  }
  bool reached_fraction(double now, double initial) const {
    return loss_fraction > 0 && now <= loss_fraction * initial;
  }
  bool reached(double now, double initial) const {
    return reached_fraction(now, initial) || now <= loss;
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
  patience,  // passes without a better evaluation
  not_finite,
  interrupted,
  error
};

// The run's one stop flag and the reasons given. Relaxed throughout: reasons are read after the
// workers have been joined.
class StopFlag {
 public:
  void stop(StopReason why) {
    finish(why);
    give(cut_, why);
    // Relaxed: tells the workers to stop, hands nothing over.
    flag_.store(true, std::memory_order_relaxed);
    if (wake_) wake_();
  }
  // Called with every stop, by the thread that asks for it: wakes those who sleep meanwhile. Given
  // before any thread of the run has begun.
  void on_stop(std::function<void()> wake) { wake_ = std::move(wake); }
  // Gives the reason, but lets the workers that have a gradient under way publish it.
  void finish(StopReason why) { give(reason_, why); }
  bool stopped() const { return flag_.load(std::memory_order_relaxed); }
  const std::atomic<bool>& flag() const { return flag_; }
  // The first reason given, and the first that cut gradients under way short.
  StopReason reason() const { return reason_.load(std::memory_order_relaxed); }
  StopReason cut() const { return cut_.load(std::memory_order_relaxed); }
  bool gave(StopReason why) const { return reason() == why || cut() == why; }

 private:
  static void give(std::atomic<StopReason>& first, StopReason why) {
    StopReason none = StopReason::none;
    first.compare_exchange_strong(none, why, std::memory_order_relaxed);
  }

  alignas(kCacheLine) std::atomic<bool> flag_{false};
  std::atomic<StopReason> reason_{StopReason::none}, cut_{StopReason::none};
  std::function<void()> wake_;
};

std::string_view stop_reason_name(StopReason reason);

}  // namespace leashed
