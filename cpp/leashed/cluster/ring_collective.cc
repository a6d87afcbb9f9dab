#include "leashed/cluster/ring_collective.h"

#include <poll.h>

#include <optional>
#include <utility>

#include "leashed/cluster/messages.h"

namespace leashed {

RingCollective::RingCollective(std::unique_ptr<Connection> previous,
                               std::unique_ptr<Connection> next, std::size_t rank,
                               std::size_t members)
    : previous_(std::move(previous)),
      next_(std::move(next)),
      place_{*previous_, *next_, rank, members} {}

void RingCollective::sum(std::span<float> values, const RingCodec& codec,
                         const Deadline& deadline) {
  all_reduce(place_, reduce_kind(codec.codec), round_++, values, deadline, codec);
}

// The member before sends first, without being asked.
std::optional<bool> RingCollective::called() {
  const std::optional<short> events = previous_->events(true, false);
  if (!events) return true;
  pollfd one{previous_->socket(), *events, 0};
  return poll(&one, 1, 0) != 0;
}

void RingCollective::broadcast(std::span<float> values, std::size_t root,
                               const Deadline& deadline) {
  leashed::broadcast(place_, root, kBroadcast, round_++, values, deadline);
}

}  // namespace leashed
