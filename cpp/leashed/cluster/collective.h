// What the trainers of one epoch sum with: the own ring (cluster/ring_collective.h), or what is
// handed in from outside.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "leashed/cluster/partners.h"
#include "leashed/net/ring.h"
#include "leashed/net/wire_count.h"

namespace leashed {

// All members call the same, in one order and with equal lengths. Where something throws
// (ConnectionError, Error), values are worth nothing, and neither is this any more: it is closed.
class Collective {
 public:
  // Closes it, and gives up what is under way.
  virtual ~Collective() = default;
  // values ← their sum over all members.
  virtual void sum(std::span<float> values, const RingCodec& codec, const Deadline& deadline) = 0;
  // values ← the root's.
  virtual void broadcast(std::span<float> values, std::size_t root, const Deadline& deadline) = 0;
  // Whether another member has called one already, and so waits for this one; nothing where that
  // cannot be told.
  virtual std::optional<bool> called() { return std::nullopt; }
  // Adds what has gone since it was called last; nothing where nobody counts it.
  virtual void count(WireCount& traffic) = 0;
};

}  // namespace leashed
