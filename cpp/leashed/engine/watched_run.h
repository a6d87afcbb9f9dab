// A run from its first evaluation to its result, whoever trains: what its monitor is made of, in
// the order of a run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "leashed/engine/monitor.h"
#include "leashed/engine/result.h"

namespace leashed {

class WatchedRun {
 public:
  // saving: null where no checkpoints are taken; initial_loss: NaN: that of the first evaluation.
  // What is given must stay.
  WatchedRun(Run& run, const DatasetView* validation, Saver* saving,
             const Monitor::Intervals& every, double initial_loss, const TrainCallbacks& callbacks);
  WatchedRun(const WatchedRun&) = delete;

  // Evaluates, then watches the workers that the executor runs until all have ended. The executor
  // is made on the running clock; not at all, where the run is stopped before.
  void train(const std::function<std::unique_ptr<Executor>()>& executor);
  // Throws what a worker has thrown. `used_batches`: by the version that the run ends with.
  TrainResult end(const std::function<std::uint64_t(std::uint64_t t)>& used_batches);

  bool keep_evaluating() { return monitor_.keep_evaluating(); }
  const Stopwatch& clock() const { return clock_; }

 private:
  Run& run_;
  const bool evaluates_;
  bool begun_ = false;
  Stopwatch clock_;
  Evaluator evaluator_;
  History history_;
  Monitor monitor_;
};

}  // namespace leashed
