// How a discipline's reads and updates take their time: each class here plays one for all workers
// on one thread, by the discipline's own code, called in the parts between which others get on.
#pragma once

#include <cstdint>
#include <memory>

#include "leashed/base/choice.h"
#include "leashed/discipline/context.h"
#include "leashed/discipline/discipline.h"

namespace leashed {

// What plays a protocol.
class Stage {
 public:
  virtual ~Stage() = default;

  virtual std::int64_t now() const = 0;
  // Of the worker's next update (one attempt, T_u), and of its next copy of theta.
  virtual std::int64_t update_time(std::uint32_t worker) = 0;
  virtual std::int64_t copy_time(std::uint32_t worker) = 0;
  // Protocol::step is to be called for the worker then.
  virtual void step_at(std::int64_t ns, std::uint32_t worker) = 0;
  // The worker has read.
  virtual void has_read(std::uint32_t worker, const View& view) = 0;
  // What became of the worker's gradient; the times in it are virtual.
  virtual void updated(std::uint32_t worker, const Publication& publication) = 0;
};

class Protocol {
 public:
  virtual ~Protocol() = default;

  // The worker begins to read.
  virtual void read(std::uint32_t worker) = 0;
  // The worker, which has read, begins to update; the gradient stays until `updated`.
  virtual void update(std::uint32_t worker, float* gradient) = 0;
  virtual void step(std::uint32_t worker) = 0;
  // Whatever workers have begun is given up.
  virtual void end() = 0;
};

// Throws Error for what cannot be played. `discipline` was made from the choice and the context.
std::unique_ptr<Protocol> make_protocol(const Choice& choice, const DisciplineContext& context,
                                        Discipline& discipline, Stage& stage);

}  // namespace leashed
