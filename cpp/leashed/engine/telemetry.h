// What a run measures: per worker while it runs, on cache lines of its own, and merged at the end.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/base/relaxed.h"
#include "leashed/data/head_score.h"
#include "leashed/data/scored_rows.h"
#include "leashed/engine/histogram.h"
#include "leashed/engine/step_observer.h"
#include "leashed/table/row_publication.h"

namespace leashed {

// The losses that the gradients of one pass over the data found, of parameters that changed
// meanwhile.
struct PassLoss {
  double sum = 0;
  std::uint64_t rows = 0;

  void add(double loss_sum, std::uint64_t of_rows) {
    sum += loss_sum;
    rows += of_rows;
  }
  double mean() const { return sum / static_cast<double>(rows); }
};

// A running mean of the losses that a worker's batches were found to have, NaN before the first.
// Relaxed: the monitor takes a hint from it.
class RunningLoss {
 public:
  void add(double loss, double weight) {
    const double old = get();
    mean_.store(std::isnan(old) ? loss : old + weight * (loss - old), std::memory_order_relaxed);
  }
  double get() const { return mean_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> mean_{std::numeric_limits<double>::quiet_NaN()};
};

// The mean losses of the rows of a stream that a worker's batches were of, by pass: of the two
// latest.
class StreamLoss {
 public:
  // Of a batch whose rows begin with that one, of passes of so many; 0: all are of the first. Each
  // pass has the batch's mean for those that are its own: what each row had is not known.
  void add(std::uint64_t first, std::uint64_t pass_rows, double loss, std::size_t rows) {
    if (rows == 0) return;
    const std::uint64_t end = first + rows, last = pass_rows ? (end - 1) / pass_rows : 0;
    const std::uint64_t begin = last * pass_rows;  // of the last pass
    if (first < begin) add_to(last - 1, loss, begin - std::max(first, begin - pass_rows));
    add_to(last, loss, end - std::max(first, begin));
  }

  // f(pass, mean, rows) of each, if there are any rows.
  template <class F>
  void each(F f) const {
    for (const Part& part : parts_) {
      const std::uint64_t rows = part.rows.load(kRelaxed);
      if (rows > 0) f(part.pass.load(kRelaxed), part.mean.load(kRelaxed), rows);
    }
  }

 private:
  // The mean is brought up to date row by row, so that no sum swallows small ones.
  void add_to(std::uint64_t pass, double loss, std::uint64_t rows) {
    Part& part = parts_[pass % 2];
    if (part.pass.load(kRelaxed) != pass) part.rows.store(0, kRelaxed);
    const std::uint64_t all = part.rows.load(kRelaxed) + rows;
    const double old = all == rows ? loss : part.mean.load(kRelaxed);
    const double share = static_cast<double>(rows) / static_cast<double>(all);
    part.pass.store(pass, kRelaxed);
    part.mean.store(old + share * (loss - old), kRelaxed);
    part.rows.store(all, kRelaxed);
  }

  // Relaxed: of what the monitor reads meanwhile each may be of another batch; it is exact when the
  // worker has been joined.
  struct Part {
    std::atomic<std::uint64_t> pass{0}, rows{0};
    std::atomic<double> mean{0};
  };
  Part parts_[2];
};

// One worker's counts; that worker alone writes them.
struct alignas(kCacheLine) WorkerTelemetry {
  Counter gradients;                // computed
  Counter dropped;                  // given up by the persistence bound
  Counter lost_to_synchronisation;  // of those, for one that is no update
  Counter excluded;                 // left out by the staleness policy
  CountHistogram staleness, staleness_compute, staleness_schedule;  // of published gradients
  CountHistogram tries;  // failed attempts, of every gradient handed to publish
  TimeHistogram gradient_seconds, update_seconds;  // T_c, T_u
  TimeHistogram attempt_seconds;                   // of update_seconds, each attempt's share
  RunningLoss loss;                                // of data in memory
  StreamLoss stream_loss;                          // of a stream
  double read_seconds = 0, sampling_seconds = 0, waiting_seconds = 0, running_seconds = 0;
  double data_seconds = 0;       // of sampling_seconds: until rows of a stream had been read
  RowPublication rows;           // what became of the gradients of tables' rows
  double row_seconds = 0;        // in their updates
  std::vector<PassLoss> passes;  // of the first passes of the run, as many as there are here
};

// What progressive validation (progress_metrics.h) counted in between two looks, and in all up to
// the second.
struct ScoredWindow {
  double seconds;                     // on the training clock, at the second
  std::uint64_t updates;              // version then
  std::vector<Scores> window, total;  // of each label
};

// One look at the run by the monitor.
struct Evaluated {
  double seconds;                        // on the training clock, when the snapshot was taken
  std::uint64_t updates;                 // its version
  double loss, accuracy;                 // on the training set
  std::uint64_t rows;                    // of it, that these are of; 0 of a stream
  double validation_accuracy;            // NaN without a validation set
  std::uint64_t gradients;               // computed so far
  std::uint64_t memory_bytes;            // resident set
  std::uint64_t live_vectors;            // parameter vectors and gradients in use
  std::vector<std::uint64_t> staleness;  // counts so far
  Found observed;                        // by the run's observers
  std::shared_ptr<const ScoredWindow> scored = nullptr;  // up to then; null: nothing is
  // NaN without a validation set.
  double validation_loss = std::numeric_limits<double>::quiet_NaN();
  // Of either set, where rows have logits: of each label.
  std::vector<HeadScore> heads = {}, validation_heads = {};
};

}  // namespace leashed
