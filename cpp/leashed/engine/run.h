// What all workers of one training run share, and one worker's loop: the only training loop there
// is.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/data/dataset_view.h"
#include "leashed/data/run_sampler.h"
#include "leashed/data/sampler.h"
#include "leashed/discipline/discipline.h"
#include "leashed/engine/stop.h"
#include "leashed/engine/telemetry.h"
#include "leashed/model/gradient_source.h"

namespace leashed {

// How far a run has come that goes on from a checkpoint; stop rules that count do so from the run's
// beginning. The parameters and the rule's state are the discipline's.
struct Position {
  std::uint64_t updates = 0;  // published: the discipline's version
  std::uint64_t batches = 0;  // used
};

struct Run {
  Run(const GradientSource& source, const DatasetView& data, Discipline& discipline,
      const StopRules& until, std::size_t workers, std::size_t batch_size, std::uint64_t seed,
      const Position& from)
      : source(source),
        data(data),
        discipline(discipline),
        until(until),
        workers(workers),
        batch_size(batch_size),
        sampler(seed, data.rows, batch_size),
        runs(seed, data.rows, batch_size),
        in_place(data.sparse && discipline.in_place()),
        claim(in_place ? runs.run() : 1),
        from(from),
        end(in_place ? from.batches + std::min(left(until.updates, from.updates),
                                               left(until.batches, from.batches))
                     : until.batches),
        next_batch(from.batches / claim * claim),
        next_update(from.updates) {}

  static std::uint64_t left(std::uint64_t all, std::uint64_t used) {
    return all > used ? all - used : 0;
  }

  // Keeps the first exception of a worker and stops the run.
  void fail(std::exception_ptr error) {
    {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = error;
    }
    stop.stop(StopReason::error);
  }

  const GradientSource& source;
  const DatasetView data;
  Discipline& discipline;
  const StopRules until;
  const std::size_t workers;
  const std::size_t batch_size;
  const Sampler sampler;
  const RunSampler runs;    // of sparse rows
  const bool in_place;      // workers make updates themselves, a run of them at a time
  const std::size_t claim;  // batches that a worker claims at once
  const Position from;
  // Number of the first batch that there is not. In place, every batch is an update.
  const std::uint64_t end;

  StopFlag stop;
  // Each worker claims its next batch number, and, where it makes no updates in place, one update
  // it may publish, from these. What is claimed in place begins at a multiple of `claim` also where
  // the run goes on from the middle of that. Relaxed: distinct numbers are all that is asked of
  // them.
  alignas(kCacheLine) std::atomic<std::uint64_t> next_batch;
  alignas(kCacheLine) std::atomic<std::uint64_t> next_update;

  std::mutex failure_mutex;
  std::exception_ptr failure;
};

class Worker {
 public:
  Worker(Run& run, std::size_t id);
  Worker(Worker&&) = default;

  // Until a stop rule says so; throws nothing.
  void train();

  const WorkerTelemetry& telemetry() const { return *telemetry_; }

 private:
  struct Batch {
    std::uint64_t k = 0;        // its number, or the first of a run's
    std::uint64_t batches = 1;  // of the run
    std::vector<const float*> rows;
    std::vector<std::int32_t> labels;
    std::vector<float> values;
    BatchView view{nullptr, Targets(labels.data()), 0};
  };
  bool exists(std::uint64_t k) const { return k < run_.end; }
  bool wants_another();
  void step();
  // The same for a run of updates that the worker makes where the parameters lie.
  void step_in_place();
  float update(const InPlaceView& view);
  // The effect of the worker's runs with that one's.
  RunEffect effect_with(const InPlaceView& view) const;
  // Claims the next batch number and samples that batch, so that its rows can come into the cache
  // while the batch before it is worked on.
  void look_ahead();
  void sample();

  Run& run_;
  const std::size_t id_;
  std::uint64_t claims_ = 0;  // of batches
  std::uint64_t steps_ = 0;   // taken so far
  bool may_publish_ = false;  // an update that it has claimed
  std::unique_ptr<Workspace> workspace_;
  AlignedArray<float> gradient_;
  std::vector<std::size_t> indices_;
  Batch current_, next_;
  std::unique_ptr<WorkerTelemetry> telemetry_;
};

}  // namespace leashed
