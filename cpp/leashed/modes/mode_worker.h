// A worker of a training by a mode: a thread that computes what is granted to its lane, and pushes
// it.
#pragma once

#include <memory>

#include "leashed/engine/run.h"
#include "leashed/modes/mode_server.h"
#include "leashed/modes/turns.h"

namespace leashed {

class ModeWorker {
 public:
  // models: the workers' own, by lane, where nobody but their workers looks at them; null: the mode
  // has none, or the server has them. turns: to compute, of workers that look ahead; null: all may
  // at once. All that is given must stay.
  ModeWorker(Run& run, ModeServer& server, const modes::WorkerRule& rule, OwnModels* models,
             Lane& lane, Turns* turns = nullptr);

  // What its thread does. Throws nothing.
  void work();

 private:
  // False, all three: the run is stopped, or has ended for this worker.
  bool await();
  bool compute();  // all gradients of the lease
  bool step_own(bool last);
  Turns::Turn turn();

  WorkerTelemetry& telemetry() { return run_.counting.of(lane_.number); }

  Run& run_;
  ModeServer& server_;
  const modes::WorkerRule rule_;
  OwnModels* const models_;
  Lane& lane_;
  Turns* const turns_;
  std::unique_ptr<Workspace> workspace_;
};

}  // namespace leashed
