// What a run measures: per worker while it runs, on cache lines of its own, and merged at the end.
#pragma once

#include <cstdint>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/engine/histogram.h"

namespace leashed {

// One worker's counts; that worker alone writes them.
struct alignas(kCacheLine) WorkerTelemetry {
  Counter gradients;  // computed
  Counter dropped;    // given up by the persistence bound
  Counter excluded;   // left out by the staleness policy
  CountHistogram staleness, staleness_compute, staleness_schedule;  // of published gradients
  CountHistogram tries;  // failed attempts, of every gradient handed to publish
  TimeHistogram gradient_seconds, update_seconds;  // T_c, T_u
  double read_seconds = 0, sampling_seconds = 0, waiting_seconds = 0, running_seconds = 0;
};

// One look at the run by the monitor.
struct Evaluated {
  double seconds;                        // on the training clock, when the snapshot was taken
  std::uint64_t updates;                 // its version
  double loss, accuracy;                 // on the training set
  double validation_accuracy;            // NaN without a validation set
  std::uint64_t gradients;               // computed so far
  std::uint64_t memory_bytes;            // resident set
  std::uint64_t live_vectors;            // parameter vectors and gradients in use
  std::vector<std::uint64_t> staleness;  // counts so far
};

}  // namespace leashed
