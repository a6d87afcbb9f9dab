// A discipline: how worker threads read and write the shared parameters. The training loop
// (engine/worker.cc) exists once and knows disciplines only through this interface; there is one
// virtual call per read and per publish, none inside a loop over parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/discipline/lazy_shrink.h"
#include "leashed/staleness/registry.h"
#include "leashed/update/rule.h"
#include "leashed/vector/permits.h"

namespace leashed {

// Where updates are made in place and touch few parameters each (Discipline::open).
struct SparseUse {
  std::size_t active = 0;   // parameters that change at all, which come first; 0: no such updates
  std::size_t outputs = 1;  // of the model: so many intercepts come first of all
  // Of each column that changes, the mean square of its values over all rows; outlives the
  // discipline.
  const float* mean_squares = nullptr;
};

// What a worker's runs of updates do beside adding gradients, summed up from the first.
struct RunEffect {
  double log_shrink = 0;   // what is no intercept is to be multiplied by e to this
  double contraction = 0;  // Σ η · the loss's largest curvature
  bool whole = true;       // the last run was not cut short
};

// Theta as it is where updates are made, while some of it is to get weight decay yet, and how far
// that has come. Null: theta has all of it.
struct Behind {
  const float* theta = nullptr;
  const ShrinkProgress* shrink = nullptr;
};

// What a run can go on from.
struct State {
  const float* buffer;  // theta and the rule's state (update/layout.h)
  std::uint64_t t;      // its version
  Behind behind = {};   // to go on to the same bits
};

// What every discipline is made from.
struct DisciplineContext {
  const float* initial;  // theta [dimension], copied
  std::size_t dimension;
  std::size_t workers;
  std::size_t readers;  // that may hold a snapshot besides the workers
  const Rule& rule;     // rule and policy must outlive the discipline
  const StalenessPolicy& staleness = no_staleness_policy();
  std::vector<std::size_t> block_ends = {};  // where theta's variables end; empty: it is one
  // To go on from: a buffer that with_state gave, in place of `initial`, and its version.
  const float* state = nullptr;
  std::uint64_t t = 0;
  SparseUse sparse = {};
  Behind behind = {};  // of `state`, where updates are made in place
};

// What a worker computes its gradient on. Valid until the worker's next publish or withdraw.
struct View {
  const float* theta;
  std::uint64_t t;  // version read
};

// Where a worker makes a run of updates itself.
struct InPlaceView {
  float* theta = nullptr;
  std::size_t stride = 0;  // from theta to the rule's state
  std::uint64_t t = 0;     // updates applied before
  const Rule* rule = nullptr;
  double waiting_seconds = 0;
  RunEffect effect = {};  // so far, for close to be given with this run's added
};

// Theta at one version, for whoever holds it and for as long as they do: neither an update nor the
// end of their thread takes it away, and only the discipline must outlive it. Under Hogwild without
// a copy, and where there is one thread, it is the vector itself, which goes on changing.
class Held {
 public:
  virtual ~Held() {
    if (permit_) permit_->give_back();
  }
  // Gives that permit back when it ends.
  void under(Permits& permit) { permit_ = &permit; }

  View view{};

 private:
  Permits* permit_ = nullptr;
};

// A gradient in pieces, ascending: values[i] belongs to parameter begin + i. What no piece covers
// has none: those parameters and their state stay as they are.
struct GradientPiece {
  const float* values;
  std::size_t begin, end;
};
using Gradient = std::span<const GradientPiece>;

// One that is zero but at `size` parameters, ascending.
struct SparseGradient {
  const std::int64_t* indices;
  const float* values;
  std::size_t size;
};

// What became of a gradient. Staleness τ = τᶜ + τˢ counts the updates applied between the read and
// this one (READINGS, "Words that differ"): τᶜ until the worker was ready to update, τˢ after that.
struct Publication {
  bool published = false;
  bool abandoned = false;  // in lockstep, because the run is being stopped: as if never computed
  bool excluded = false;   // by the staleness policy; the rest is unset but for the times
  std::uint64_t staleness_compute = 0;
  std::uint64_t staleness_schedule = 0;
  std::uint64_t tries = 0;     // failed attempts (CAS lost to another update)
  double update_seconds = 0;   // T_u: in the update itself, all attempts together
  double waiting_seconds = 0;  // for locks and barriers
};

class Discipline {
 public:
  virtual ~Discipline() = default;

  virtual View read(std::size_t worker) = 0;
  // Applies the gradient computed on the worker's last view; it may use `gradient` as scratch.
  virtual Publication publish(std::size_t worker, float* gradient) = 0;
  // Gives the last view up without an update; only while the run is being stopped.
  virtual void withdraw(std::size_t worker) = 0;

  // For threads that are not the training loop's and that come and go (engine/engine.h), in place
  // of read and publish: whoever calls keeps the version read. At most `readers` views are held and
  // `workers` pushes made at once.
  virtual std::unique_ptr<Held> hold() { throw Error(kLockstepOnly); }
  // (`stores` is the calling thread's own.)
  virtual Publication push(Gradient /*gradient*/, std::uint64_t /*t_read*/,
                           StoreChoice& /*stores*/) {
    throw Error(kLockstepOnly);
  }
  // Changes only what the gradient names.
  virtual Publication push_sparse(const SparseGradient& /*gradient*/, std::uint64_t /*t_read*/) {
    throw Error(
        "a sparse gradient can be pushed under Hogwild only; elsewhere every update writes the "
        "whole vector: push the dense gradient");
  }

  // True where all workers take every step together; the engine then runs them as one OpenMP team.
  virtual bool lockstep() const { return false; }
  // Whether the worker goes on, given that it would like to. In lockstep: whether all do.
  virtual bool proceed(std::size_t /*worker*/, bool wish) { return wish; }

  // A worker may make a run of updates itself, where the parameters lie (GradientSource::update),
  // instead of read and publish; the discipline must have been made for it.
  virtual bool in_place() const { return false; }
  // Where it may, from now on.
  virtual InPlaceView open(std::size_t /*worker*/, std::uint64_t /*updates*/) { return {}; }
  // It has. Staleness is the mean over the updates.
  virtual Publication close(std::size_t /*worker*/, std::uint64_t /*updates*/,
                            const RunEffect& /*effect*/) {
    return {};
  }
  // The worker has made its last.
  virtual void leave(std::size_t /*worker*/) {}

  // Calls f with a consistent theta and its version (Hogwild: as consistent as Hogwild is), while
  // workers run. One caller at a time.
  virtual void with_snapshot(const std::function<void(const float* theta, std::uint64_t t)>& f) = 0;
  // The same with the rule's state. Here: with_snapshot's theta is the start of the whole buffer.
  virtual void with_state(const std::function<void(const State&)>& f) {
    with_snapshot([&f](const float* buffer, std::uint64_t t) { f({buffer, t}); });
  }
  // Updates applied so far; for that same caller.
  virtual std::uint64_t updates() {
    std::uint64_t t = 0;
    with_snapshot([&t](const float*, std::uint64_t now) { t = now; });
    return t;
  }
  // The parameters themselves where they lie in one place for good, else null.
  virtual float* memory() { return nullptr; }

  // Parameter vectors in use now, and the most that were ever needed at once; without gradients and
  // without the monitor's copy.
  virtual std::size_t live_vectors() const = 0;
  virtual std::size_t peak_vectors() const { return live_vectors(); }

 private:
  static constexpr const char* kLockstepOnly =
      "Synchronous takes all its threads through every step together, so threads cannot come and "
      "go; choose Leashed(), Hogwild(), Locked() or Sequential()";
};

}  // namespace leashed
