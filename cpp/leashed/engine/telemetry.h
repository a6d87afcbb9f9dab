// What a run measures: per worker while it runs, on cache lines of its own, and merged at the end.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/data/scored_rows.h"
#include "leashed/engine/histogram.h"
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
  RunningLoss loss;
  double read_seconds = 0, sampling_seconds = 0, waiting_seconds = 0, running_seconds = 0;
  double data_seconds = 0;       // of sampling_seconds: until rows of a stream had been read
  RowPublication rows;           // what became of the gradients of tables' rows
  double row_seconds = 0;        // in their updates
  std::vector<PassLoss> passes;  // of the first passes of the run, as many as there are here
};

// What progressive validation (progress_metrics.h) counted in between two looks, and in all up to
// the second.
struct ScoredWindow {
  double seconds;         // on the training clock, at the second
  std::uint64_t updates;  // version then
  Scores window, total;
};

// One look at the run by the monitor.
struct Evaluated {
  double seconds;              // on the training clock, when the snapshot was taken
  std::uint64_t updates;       // its version
  double loss, accuracy;       // on the training set
  double validation_accuracy;  // NaN without a validation set
  // Of clicks (click_metrics.h), of either set; NaN of everything else.
  double auc, normalised_entropy, validation_auc, validation_normalised_entropy;
  std::uint64_t gradients;                               // computed so far
  std::uint64_t memory_bytes;                            // resident set
  std::uint64_t live_vectors;                            // parameter vectors and gradients in use
  std::vector<std::uint64_t> staleness;                  // counts so far
  std::shared_ptr<const ScoredWindow> scored = nullptr;  // up to then; null: nothing is
};

}  // namespace leashed
