// One worker of a training under a discipline: claims a batch, computes a gradient on what it
// reads, publishes it, or makes a run of updates where the parameters lie. An executor runs it.
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include "leashed/engine/training.h"

namespace leashed {

class Worker {
 public:
  Worker(Training& training, std::size_t id);
  Worker(Worker&&) = default;

  // Until a stop rule says so, or the monotonic clock does after a step: then true, to be called
  // again. Throws nothing.
  bool train(double until = std::numeric_limits<double>::infinity());

 private:
  struct Claimed : Claim {
    bool waiting = false;             // for its number to be known
    std::unique_ptr<BatchRows> rows;  // of tables; null: there are none
    bool located = false;             // they are prefetched
  };
  // Until the feed says so, or the run is stopped.
  template <class Ask>
  Feed::Given wait(const Ask& ask);
  // Whether there are so many batches from that place on; waits until that is known.
  bool exist(std::uint64_t place, std::uint64_t count);
  // Fills a batch, where what it is is known in so many seconds.
  Feed::Given learn(Claimed& claim, double seconds);
  bool wants_another();
  // Waits for the next batch, and where all workers are to, between two steps; `due`: from here.
  // False where the run is stopped.
  bool have_batch(bool due);
  std::uint64_t next_pass() const;
  Claimed& next() { return ahead_[first_]; }
  const Claimed& next() const { return ahead_[first_]; }
  // Makes the next batch the current one; what that was is the last of those ahead.
  Claimed& go_on();
  // Claims a batch behind those ahead and fills it, so that its rows can come while those before it
  // are worked on.
  void look_ahead(Claimed& last);
  // Has the rows of tables brought near.
  void locate(Claimed& claim);
  // Whether the run ends before that batch, as far as can be told now: not where a gradient under
  // way turns out to be dropped.
  bool beyond_end(const Claimed& claim) const;
  // Of the claim.
  WorkerStep begun(Claimed& claim, double seconds) const;
  void step();
  // False: it came to nothing.
  bool compute(WorkerStep& step);
  void push_rows(const Publication& publication, std::uint64_t read);
  // A run of updates that the worker makes where the parameters lie.
  void step_in_place();
  // Of its parts, one after another; `made`: how many, also where one throws.
  float update(WorkerStep step, const InPlaceView& view, double begun, std::uint64_t& made);

  Training& training_;
  const std::size_t id_;
  bool begun_ = false;
  std::uint64_t claims_ = 0;  // of batches
  std::uint64_t steps_ = 0;   // taken so far
  bool may_publish_ = false;  // an update that it has claimed
  double looked_ahead_ = 0;   // when it last had, on the monotonic clock
  std::unique_ptr<Workspace> workspace_;
  AlignedArray<float> gradient_;  // in runs in place, where one is looked at: behind theta
  Claimed current_;
  std::vector<Claimed> ahead_;  // as many as rows are wanted for, of which this is the next one:
  std::size_t first_ = 0;
  WorkerTelemetry& telemetry_;
};

}  // namespace leashed
