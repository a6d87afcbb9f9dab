// One worker: claims a batch, computes a gradient on what it reads, publishes it. The only training
// loop there is; an executor runs it.
#pragma once

#include <limits>
#include <memory>

#include "leashed/engine/telemetry.h"
#include "leashed/engine/training.h"

namespace leashed {

class Worker {
 public:
  // Records the losses of so many passes over the data.
  Worker(Training& training, std::size_t id, std::size_t recorded_passes);
  Worker(Worker&&) = default;

  // Until a stop rule says so, or the monotonic clock does after a step: then true, to be called
  // again. Throws nothing.
  bool train(double until = std::numeric_limits<double>::infinity());

  const WorkerTelemetry& telemetry() const { return *telemetry_; }

 private:
  struct Claim {
    std::uint64_t place = 0;  // of the batch in the order of this training's claims
    std::uint64_t k = 0;      // the number of the batch, or the first of a run's
    std::uint64_t count = 1;  // batches of the run
    bool waiting = false;     // for a lease to tell that number
    Batch batch;
    std::unique_ptr<BatchRows> rows;  // of tables; null: there are none
    bool located = false;             // they are prefetched
  };
  bool exists(std::uint64_t place);
  // Learns the next batch's number from its lease, where it is there in so many seconds.
  Leases::Claim learn(double seconds);
  template <class Ask>
  Leases::Claim wait(const Ask& ask);
  // Waits for it; false where the run is stopped.
  bool have_batch();
  bool wants_another();
  // Waits where all workers are to, between two steps; `due`: from here.
  void pause(bool due);
  // The losses that batch k's rows have been found to have.
  void record(std::uint64_t k, double loss_sum, std::size_t rows);
  void step();
  // The same for a run of updates that the worker makes where the parameters lie.
  void step_sparse();
  float update(const InPlaceView& view);
  float update_streamed(const InPlaceView& view);
  // Of batches that lie one after another, after so many of the run.
  float update(const InPlaceView& view, BatchView batches, std::uint64_t done);
  // The effect of the worker's runs with that one's.
  RunEffect effect_with(const InPlaceView& view) const;
  // Claims the next batch number and fills that batch, so that its rows can come into the cache
  // while the batch before it is worked on.
  void look_ahead();
  // Makes it the batch of its number, and has the rows of tables brought near where it may be
  // trained on.
  void fill(Claim& claim);
  // The same for a run of batches of a stream, of which there may be fewer.
  void fill_run(Claim& claim);
  void locate(Claim& claim);
  // Whether the run ends before the batch at that place, as far as can be told now: not where a
  // gradient under way turns out to be dropped.
  bool beyond_end(std::uint64_t place) const;
  void push_rows(const Publication& publication, std::uint64_t read);

  Training& training_;
  const std::size_t id_;
  const std::uint64_t first_pass_;
  bool begun_ = false;
  std::uint64_t claims_ = 0;  // of batches
  std::uint64_t steps_ = 0;   // taken so far
  bool may_publish_ = false;  // an update that it has claimed
  double looked_ahead_ = 0;   // when it last had, on the monotonic clock
  std::unique_ptr<Workspace> workspace_;
  AlignedArray<float> gradient_;
  Claim current_, next_;
  std::unique_ptr<WorkerTelemetry> telemetry_;
};

}  // namespace leashed
