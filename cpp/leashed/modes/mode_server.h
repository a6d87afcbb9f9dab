// A mode's server as who trains for it sees it, whether it is a lock in this process
// (modes/policy_threads.h) or lies on other machines. A lane asks for a lease, waits for it,
// computes and pushes, and with its push asks for the next one. To the mode each lane is a node,
// and has a thread. Where a trainer looks ahead it has more lanes than compute at once: they take
// turns (modes/turns.h).
//
// A lane's calls come from one thread at a time, lanes' from several at once. What they throw ends
// the run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "leashed/base/aligned.h"
#include "leashed/data/batch_source.h"
#include "leashed/policy/server_machine.h"
#include "leashed/server/own_models.h"

namespace leashed {

struct Lane {
  std::uint32_t number = 0;  // among those of this process: as telemetry and observers know it
  // The server's, which it has written before `await` returns. What was pulled lies there until
  // `taken` or `push`.
  modes::Lease lease{};
  PulledModel pulled{};
  // What gradients are of: what was pulled, or the lane's own model, or a copy of that where others
  // change it. Stays until `push`.
  const float* theta = nullptr;
  Batch batch;
  // The lane's, which the server begins for each lease, and checkpoints have: that its own model
  // has taken what was pulled, and the local steps that it has made since.
  bool taken = false;
  std::uint32_t done = 0;
  AlignedArray<float> gradient;  // of the last step; after `push` other memory may be there
};

// Gradients of a lease, which is cut into as many parts.
inline std::uint32_t steps_of(const modes::WorkerRule& rule, const modes::Lease& lease) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(rule.local_steps, lease.count));
}

class ModeServer {
 public:
  virtual ~ModeServer() = default;

  // Once, before the others: asks for a lease.
  virtual void begin(Lane& lane) = 0;
  // Waits for the lease that was asked for, and until it may be computed: through pauses for
  // checkpoints, and the ends of passes that are judged. False: the run is stopped, or has ended
  // for this lane.
  virtual bool await(Lane& lane) = 0;
  // The lane's own model has taken what was pulled, which nobody looks at any more.
  virtual void taken(Lane& lane) = 0;
  // Has those examples of the lease in the lane's batch, and shows there the rows of tables that
  // they read, and where their gradients go.
  virtual void read(Lane& lane, std::uint64_t first, std::size_t count) = 0;
  // Makes a step by the gradient on the lane's own model, of a mode where others look at that;
  // last: of its lease. False: the run has been stopped before.
  virtual bool step(Lane& lane, bool last) = 0;
  // Pushes the gradient, with those of rows, or theta where the mode's workers send models, and
  // asks for the next lease.
  virtual void push(Lane& lane) = 0;
  // Once, after all others, whatever they threw: gives up what the lane has. Throws nothing.
  virtual void leave(Lane& lane) = 0;
};

}  // namespace leashed
