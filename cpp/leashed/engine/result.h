// What a training returns, and the sum of what its workers have measured.
#pragma once

#include <string>
#include <vector>

#include "leashed/engine/stop.h"
#include "leashed/engine/telemetry.h"

namespace leashed {

struct TrainResult {
  // converged, unfinished, diverged, crashed or stopped (docs/readings.md#outcome)
  std::string outcome;
  StopReason reason = StopReason::none;
  std::vector<float> parameters;
  bool sparse_runs = false;            // workers made runs of updates themselves
  std::vector<Evaluated> evaluations;  // the first before training, the last of the final state
  double elapsed = 0;                  // seconds, on the training clock
  std::vector<PassLoss> passes;        // as many as were to be recorded
  std::vector<std::shared_ptr<const ScoredWindow>> scored;  // one after another, where metrics are
  std::uint64_t updates = 0, gradients = 0, dropped = 0, excluded = 0, lost_to_synchronisation = 0;
  std::vector<std::uint64_t> staleness, staleness_compute, staleness_schedule, tries;
  std::vector<std::uint64_t> worker_updates;  // published by each
  TimeHistogram gradient_seconds, update_seconds, attempt_seconds;
  double read_seconds = 0, sampling_seconds = 0, waiting_seconds = 0, running_seconds = 0;
  double data_seconds = 0;
  RowPublication rows;
  double row_seconds = 0;
  std::uint64_t peak_vectors = 0;  // parameter vectors and gradients
  std::uint64_t peak_memory_bytes = 0;
  Found observed;                 // by its observers
  std::string recording_failure;  // why the record of it ends before it; empty: it does not

  // A worker that has ended.
  void add(const WorkerTelemetry& worker);
};

// Where a training was interrupted before its first evaluation had ended: losses are NaN.
Evaluated nothing_evaluated();

// How a training ended, and why.
struct Ending {
  bool converged, crashed, interrupted;
  double loss_share;               // of the initial loss, in the end
  std::uint64_t updates, batches;  // made, and used
};
StopReason reason_of(const Ending& ending, const StopFlag& stop, const StopRules& until);
std::string outcome_of(const Ending& ending, StopReason reason, const StopRules& until);

}  // namespace leashed
