// A discipline: how worker threads read and write the shared parameters. The training loop
// (engine/worker.cc) exists once and knows disciplines only through this interface; there is one
// virtual call per read and per publish, none inside a loop over parameters. What else a discipline
// may offer is an interface of its own: open.h for threads that come and go, sparse/runs.h for
// updates that touch few parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "leashed/discipline/observed.h"
#include "leashed/discipline/publication.h"

namespace leashed {

class Open;
class SparseRuns;

// Changes parameters [begin, end), whose values lie at `values`, to a function of what they are.
using Transform = std::function<void(float* values, std::size_t begin, std::size_t end)>;

class Discipline : public Observed {
 public:
  // What a worker computes its gradient on: valid until its next publish or withdraw.
  virtual View read(std::size_t worker) = 0;
  // Applies the gradient computed on the worker's last view; it may use `gradient` as scratch.
  virtual Publication publish(std::size_t worker, float* gradient) = 0;
  // Gives the last view up without an update; only while the run is being stopped.
  virtual void withdraw(std::size_t worker) = 0;

  // True where all workers take every step together.
  virtual bool lockstep() const { return false; }
  // Whether the worker goes on, given that it would like to. In lockstep: whether all do.
  virtual bool proceed(std::size_t /*worker*/, bool wish) { return wish; }
  // The worker takes part no more, whatever the reason, or never will: nobody waits for it.
  virtual void leave(std::size_t /*worker*/) {}

  // A synchroniser's way to theta, for a worker between its publish and its read or one of the
  // context's synchronisers: changes theta[begin, end) by f, and neither the rule's state nor the
  // version, so that schedules, staleness and all that counts updates do not move. f may be called
  // again where an update came between, or for one part after the other.
  virtual void transform(std::size_t begin, std::size_t end, const Transform& f) = 0;
  // For the same threads: calls f with theta as it is now, as whole as workers see it; where it is
  // not published as a whole, with a copy of it in `copy` [dimension]. f may take long, and may not
  // transform.
  virtual void look(float* copy, const std::function<void(const float* theta)>& f) = 0;

  // For threads that come and go, in place of read and publish; null: they cannot.
  virtual Open* open() { return nullptr; }
  // For workers that make runs of updates themselves, in place of read and publish; null: they
  // cannot, or the discipline was not made for it.
  virtual SparseRuns* sparse_runs() { return nullptr; }
};

}  // namespace leashed
