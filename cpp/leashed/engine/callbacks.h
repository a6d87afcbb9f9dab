// What a training asks, and tells, whoever has begun it.
#pragma once

#include <functional>

#include "leashed/engine/checkpoint.h"
#include "leashed/engine/telemetry.h"

namespace leashed {

// Of a state that has been evaluated: whether it is the best so far, which is to be kept, and
// whether there have been enough that were not.
struct Verdict {
  bool keep = false, stop = false;
};

struct TrainCallbacks {
  // Asked on the calling thread about every 20 ms; true: stop and return the state reached. May
  // throw: the training is stopped and the exception passed on.
  std::function<bool()> interrupted;
  // Told of each evaluation, on the calling thread. May throw likewise.
  std::function<void(const Evaluated&, double initial_loss)> progress;
  // Given a checkpoint, on the calling thread: while the workers go on, and of the final state
  // unless it is not finite. May throw likewise. A signal that comes while it lasts must not keep
  // it from taking the checkpoint; `interrupted` tells of it afterwards.
  std::function<void(Checkpoint)> checkpoint;
  // Asked on the calling thread about every 20 ms: whether a checkpoint is wanted now. May throw
  // likewise.
  std::function<bool()> wanted = {};
  // Told, on the calling thread, before the state for a checkpoint is copied: for what is kept with
  // it and must not be newer. May throw likewise.
  std::function<void()> saving = {};
  // Asked on the calling thread, while no worker makes a step: before the first one, after each
  // pass over the data (`passed`), and at the end. May throw likewise.
  std::function<Verdict(const Evaluated&, bool passed)> judge = {};
  // Given the state that is to be kept, as a checkpoint is.
  std::function<void(Checkpoint)> keep = {};
};

}  // namespace leashed
