// Fixed-rate synchronisation by the workers themselves. With servers each worker exchanges after so
// many of its own iterations, or so much time, on connections of its own. With the other trainers
// one worker enters the round, and the others of its trainer stop at their next iteration until it
// is over. Where workers take every step together, the first enters it between two steps, which the
// others wait for anyway.
#pragma once

#include <array>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>

#include "leashed/cluster/trainer_sync.h"

namespace leashed {

class Foreground final : public TrainerSync {
 public:
  Foreground(const SyncPlan& plan, std::size_t workers);

  // The calling thread has the last rounds, where no worker has had them.
  std::size_t threads() const override { return 1; }
  void begin(const Synchronised& training, const std::function<bool()>& go_on) override;
  void stepped(std::size_t worker) override;
  void waiting(std::size_t worker) override;
  void resumed(std::size_t worker) override;
  void join(std::size_t worker) override;
  void leave(std::size_t worker) override;
  void end() override;
  // Workers exchange between their steps alone.
  void hold(bool) override {}
  bool at_rest() override;
  std::span<const float> states() const override {
    return rounds_.empty() ? std::span<const float>() : rounds_[0].states();
  }
  std::vector<WithinGap> within() const override;

 private:
  // What a worker has done since a round; its own.
  struct alignas(kCacheLine) Progress {
    std::uint64_t iterations = 0, last = 0;  // so far, and at the last round
    double last_time = 0;                    // of that, on the monotonic clock
    std::uint64_t rounds = 0;                // that it knows of
  };
  enum State : std::uint8_t {
    gone,     // or not there yet
    trains,   // and will stop at its next iteration where there is a round
    stopped,  // until the round is over
    waits,    // for a batch, or has not come to a round in time: no round waits for it
  };

  // Counts from a round that another has led, if there was one.
  void notice(Progress& own);
  bool due(const Progress& own);
  void exchange(std::size_t worker);
  // The deadline of a worker's round that begins now.
  Deadline until();
  // The last rounds with the other trainers, after which they go on in a ring without this one.
  void depart();
  // (From here on, under the lock.)
  void set(std::size_t worker, State state);
  std::size_t count(State state) const { return counts_[state]; }
  // A round with the other trainers, by a worker that does not train meanwhile, when all others of
  // this one have stopped. What its synchroniser has thrown.
  std::exception_ptr lead(std::unique_lock<std::mutex>& lock);

  const std::size_t count_;
  bool lockstep_ = false;
  std::optional<Synchronised> training_;
  std::vector<Round> rounds_;      // with servers: of each worker; else one
  double stopped_since_ = 0;       // as rounds_[0] has seen it; whoever has that one has this, too
  std::function<bool()> patient_;  // with the other trainers: whether a round may go on
  std::vector<Progress> progress_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Under the lock.
  std::vector<State> states_;            // of each worker
  std::array<std::size_t, 4> counts_{};  // of workers in each state
  std::size_t exchanging_ = 0;           // workers, with servers
  bool ended_ = false;
  // Written under the lock; relaxed, since who sees it late stops an iteration later, or counts its
  // iterations from a little later.
  std::atomic<bool> in_round_{false};
  std::atomic<std::uint64_t> over_{0};  // rounds
  std::atomic<bool> cancelled_{false};  // relaxed: exchanges are to be given up
  // A worker has made a step since the last round. Relaxed: a step that a round sees late is the
  // next one's.
  std::atomic<bool> moved_{false};
};

}  // namespace leashed
