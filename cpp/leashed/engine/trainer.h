// One training run: starts the workers, watches them (the monitor), and sums up.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "leashed/data/dataset_view.h"
#include "leashed/discipline/discipline.h"
#include "leashed/engine/run.h"
#include "leashed/engine/stop.h"
#include "leashed/engine/telemetry.h"
#include "leashed/model/gradient_source.h"

namespace leashed {

struct TrainOptions {
  std::size_t workers;
  std::size_t batch_size;
  std::uint64_t seed;
  StopRules until;
  // Seconds between the monitor's evaluations; 0: as often as keeps them to a tenth of one thread.
  double evaluate_every = 0;
  // Seconds between checkpoints.
  double checkpoint_every = std::numeric_limits<double>::infinity();
  Position from = {};
  // Where the run goes on from a checkpoint: the loss at its beginning. NaN: it begins here.
  double initial_loss = std::numeric_limits<double>::quiet_NaN();
};

// What a run can go on from.
struct Checkpoint {
  State state;        // only for now
  Position position;  // with one thread exactly that of `state`
  double initial_loss;
};

struct TrainCallbacks {
  // Asked on the calling thread at least every 20 ms; true: stop and return the state reached. May
  // throw: the run is stopped and the exception passed on.
  std::function<bool()> interrupted;
  // Told of each evaluation, on the calling thread. May throw likewise.
  std::function<void(const Evaluated&, double initial_loss)> progress;
  // Given a checkpoint, on the calling thread: while the workers go on, and of the final state
  // unless it is not finite. May throw likewise.
  std::function<void(const Checkpoint&)> checkpoint;
};

struct TrainResult {
  std::string outcome;  // converged, diverged, crashed, stopped (READINGS, "Outcome")
  StopReason reason = StopReason::none;
  std::vector<float> parameters;
  std::vector<Evaluated> evaluations;  // the first before training, the last of the final state
  double elapsed = 0;                  // seconds, on the training clock
  std::uint64_t updates = 0, gradients = 0, dropped = 0, excluded = 0;
  std::vector<std::uint64_t> staleness, staleness_compute, staleness_schedule, tries;
  TimeHistogram gradient_seconds, update_seconds;
  double read_seconds = 0, sampling_seconds = 0, waiting_seconds = 0, running_seconds = 0;
  std::uint64_t peak_vectors = 0;  // parameter vectors and gradients
  std::uint64_t peak_memory_bytes = 0;
};

// `discipline` has the initial parameters. Everything is read only but the discipline.
TrainResult train(const GradientSource& source, const DatasetView& data,
                  const DatasetView* validation, Discipline& discipline,
                  const TrainOptions& options, const TrainCallbacks& callbacks);

}  // namespace leashed
