// The calling thread while workers train (where it is the worker itself, between two slices of its
// work): it looks at the clock and at signals, evaluates, takes
// checkpoints, and stops the training where a stop rule holds.
#pragma once

#include <limits>

#include "leashed/base/clock.h"
#include "leashed/engine/callbacks.h"
#include "leashed/engine/history.h"

namespace leashed {

class Executor;
class Saver;

class Monitor {
 public:
  // Seconds between evaluations, 0: as often as keeps them to a tenth of one thread; and between
  // checkpoints.
  struct Intervals {
    double evaluate, checkpoint;
  };
  // saving: null where no checkpoints are taken.
  Monitor(Run& run, History& history, Saver* saving, const Stopwatch& clock, const Intervals& every,
          const TrainCallbacks& callbacks);

  // Until all workers have ended.
  void watch(Executor& executor);
  // Evaluates the state now and judges it; false where that ended early.
  bool evaluate(std::size_t threads);
  // Has the latest evaluation judged, which is of the state now, while no worker makes a step;
  // where a pass has ended the run may be stopped.
  void weigh(bool passed);
  // Hands on a checkpoint of the state now; false where it must be tried again.
  bool save();

  // Whether a checkpoint is asked for from outside.
  bool wanted() const { return callbacks_.wanted && callbacks_.wanted(); }
  // Signals, whether rows are forsaken, and the clock; throws what the callback throws.
  void look();
  // An evaluation while workers run is not worth finishing once they are to stop; the final one is,
  // unless the user has interrupted and it takes long. Meanwhile hands on a checkpoint that is
  // asked for from outside.
  bool keep_evaluating();

  bool interrupted() const { return interrupted_; }
  bool converged() const { return converged_; }
  bool crashed() const { return crashed_; }

 private:
  double interval() const;
  // Copies theta, and says when to do so next.
  void remember();
  void judge(const Evaluated& e);

  Run& run_;
  History& history_;
  Saver* const saving_;
  const Stopwatch& clock_;
  const Intervals every_;
  const TrainCallbacks& callbacks_;
  double next_look_ = 0, patience_ends_ = 0;
  double next_copy_ = std::numeric_limits<double>::infinity(), copy_interval_ = 0;
  bool interrupted_ = false, converged_ = false, crashed_ = false;
};

}  // namespace leashed
