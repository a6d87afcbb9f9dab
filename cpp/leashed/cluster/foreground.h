// Fixed-rate synchronisation by the workers themselves. With servers each worker exchanges after so
// many of its own iterations, or so much time, on connections of its own. With the other trainers
// one worker enters the round, and the others of its trainer stop at their next iteration until it
// is over. Where workers take every step together, the first enters it between two steps, which the
// others wait for anyway.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>

#include "leashed/cluster/trainer_sync.h"

namespace leashed {

class Foreground final : public TrainerSync {
 public:
  Foreground(const SyncPlan& plan, std::size_t workers);

  // The calling thread has the last rounds.
  std::size_t threads() const override { return 1; }
  void begin(const Synchronised& training, const std::function<bool()>& go_on) override;
  void stepped(std::size_t worker) override;
  void waiting(std::size_t worker) override;
  void resumed(std::size_t worker) override;
  void leave(std::size_t worker) override;
  void end() override;

 private:
  // What a worker has done since a round; its own.
  struct alignas(kCacheLine) Progress {
    std::uint64_t iterations = 0, last = 0;  // so far, and at the last round
    double last_time = 0;                    // of that, on the monotonic clock
    std::uint64_t rounds = 0;                // that it knows of
  };
  // Counts from a round that another has led, if there was one.
  void notice(Progress& own);
  bool due(const Progress& own) const;
  // A round with the other trainers, when all other workers of this one have stopped.
  void lead(std::unique_lock<std::mutex>& lock);

  const std::size_t count_;
  bool lockstep_ = false;
  std::optional<Synchronised> training_;
  std::vector<Round> rounds_;  // with servers: of each worker; else one
  std::vector<Progress> progress_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Under the lock.
  std::size_t active_ = 0;   // workers that train yet
  std::size_t stopped_ = 0;  // of those, at their next iteration until the round is over
  std::size_t waiting_ = 0;  // of those, for a batch
  std::vector<bool> waits_;
  // Written under the lock; relaxed, since who sees it late stops an iteration later, or counts its
  // iterations from a little later.
  std::atomic<bool> in_round_{false};
  std::atomic<std::uint64_t> over_{0};  // rounds
};

}  // namespace leashed
