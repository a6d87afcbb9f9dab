// What keeps the parameters of a training in step with those of other trainings while it runs.
// Whoever synchronises reaches theta through the discipline alone (Discipline::transform, look).
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>

#include "leashed/engine/step_observer.h"

namespace leashed {

class Discipline;

// What of a training a synchronisation works with.
struct Synchronised {
  Discipline& discipline;
  std::size_t workers;
  std::size_t dimension;
  const std::atomic<bool>& stopped;              // then nobody waits any more
  std::function<void(std::exception_ptr)> fail;  // stops it, and comes out of it
  // Whether workers join and leave as they like; else all are there from the beginning.
  bool come_and_go = false;
};

class Synchronisation : public StepObserver {
 public:
  void published(const WorkerStep& step, const Publication&) final { stepped(step.worker); }

  // Threads beside the workers that transform theta.
  virtual std::size_t threads() const = 0;
  // Before the workers begin: theta becomes what the others have, where they have something. Asks
  // now and then whether to go on. Synchronises from now on, until end().
  virtual void begin(const Synchronised& training, const std::function<bool()>& go_on) = 0;
  // The worker has made a step and holds no view. May last as long as an exchange takes.
  virtual void stepped(std::size_t worker) = 0;
  // The worker takes part from here on, where workers come and go.
  virtual void join(std::size_t /*worker*/) {}
  // The worker takes part no more. Where workers do not come and go, the last one's may last as
  // long as a round takes.
  void leave(std::size_t worker) override = 0;
  // All workers have ended, or begin() has thrown. Where workers come and go, some may be in a step
  // yet, which is waited for, or begin one, in which nothing is done. Throws nothing.
  virtual void end() = 0;
};

}  // namespace leashed
