// One gradient, in every loop the same, whoever waits and whatever time is.
#pragma once

#include <cmath>

#include "leashed/engine/step_observer.h"
#include "leashed/engine/stop.h"

namespace leashed {

// rows(): has the batch in the step, with the rows of tables that it reads; gradient(): the
// source's, into the step's; returns its loss. Each says in the step what it took. False: it came
// to nothing, since the run has been stopped meanwhile, or is now, the loss being no number.
template <class Rows, class Gradient>
bool compute(WorkerStep& step, Observers& observers, StopFlag& stop, const Rows& rows,
             const Gradient& gradient) {
  rows();
  observers.place_logits(step);
  const float loss = gradient();
  if (stop.stopped()) return false;
  if (!std::isfinite(loss)) return stop.stop(StopReason::not_finite), false;
  step.loss_sum = double{loss} * static_cast<double>(step.batch->size);
  observers.computed(step);
  return true;
}

}  // namespace leashed
