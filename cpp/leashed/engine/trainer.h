// One training: starts the workers, has the monitor watch them, and sums up.
#pragma once

#include <limits>

#include "leashed/data/stream_batches.h"
#include "leashed/discipline/context.h"
#include "leashed/engine/callbacks.h"
#include "leashed/engine/leases.h"
#include "leashed/engine/position.h"
#include "leashed/engine/progress_metrics.h"
#include "leashed/engine/result.h"
#include "leashed/engine/stop.h"
#include "leashed/engine/synchronisation.h"
#include "leashed/row_store/row_store.h"

namespace leashed {

class Discipline;

struct TrainOptions {
  std::size_t workers;
  std::size_t batch_size;
  std::uint64_t seed;
  StopRules until;
  // Seconds between the monitor's evaluations; 0: as often as keeps them to a tenth of one thread,
  // those that the workers' own losses call for apart (History::promising);
  // infinite: none, not even at the beginning and the end.
  double evaluate_every = 0;
  // Passes over the data, from the one that the training begins in, whose losses are recorded as
  // the gradients find them; then batches are of one pass each (data/pass_batches.h). 0: none.
  std::size_t recorded_passes = 0;
  // Seconds between checkpoints.
  double checkpoint_every = std::numeric_limits<double>::infinity();
  // Updates between checkpoints for which all workers pause; 0: none.
  std::uint64_t pause_every = 0;
  // Where the training goes on from a checkpoint: the position, and the loss at its beginning. NaN:
  // it begins here.
  Position from = {};
  double initial_loss = std::numeric_limits<double>::quiet_NaN();
  // Where the rows are of the tables that the source reads; null: it reads none.
  RowStore* rows = nullptr;
  // Where the training is one of several: what tells which batches are its own, and what keeps
  // their parameters together. Null: it is alone.
  Leases* leases = nullptr;
  Synchronisation* synchronisation = nullptr;
  // What is kept of the outputs that gradients find, of a source that gives logits; null: nothing.
  ProgressMetrics* metrics = nullptr;
  // Who else hears of steps.
  std::vector<StepObserver*> observers = {};
  // What is trained on where the rows do not lie in memory: then `data` has none. It ends with the
  // training. Null: `data`.
  const StreamedData* stream = nullptr;
  // Whether passes are judged (TrainCallbacks): workers wait meanwhile.
  bool judges = false;
};

// `discipline` was made from `context`: it has the parameters to begin with. Everything is read
// only but the discipline.
TrainResult train(const GradientSource& source, const DatasetView& data,
                  const DatasetView* validation, Discipline& discipline,
                  const DisciplineContext& context, const TrainOptions& options,
                  const TrainCallbacks& callbacks);

}  // namespace leashed
