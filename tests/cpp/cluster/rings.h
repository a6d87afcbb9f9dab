// The members' sides of a ring, in one process.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cluster/wires.h"
#include "leashed/cluster/messages.h"
#include "leashed/cluster/ring_collective.h"
#include "leashed/cluster/ring_group.h"

namespace leashed {

// Of each member, over sockets; every second one sends with checksums where `checked`.
inline std::vector<RingGroup::Ring> rings(std::uint64_t epoch, const std::vector<bool>& fresh,
                                          bool checked = false) {
  const std::size_t n = fresh.size();
  std::vector<std::unique_ptr<Connection>> previous(n), next(n);
  for (std::size_t rank = 0; n > 1 && rank < n; ++rank) {
    const bool sums = checked && rank % 2 == 0;
    const auto [one, other] = pair_of_sockets();
    next[rank] = std::make_unique<Connection>(one, kRingLimits, sums);
    previous[(rank + 1) % n] = std::make_unique<Connection>(other, kRingLimits, sums);
  }
  std::vector<RingGroup::Ring> rings;
  for (std::size_t rank = 0; rank < n; ++rank) {
    std::unique_ptr<Collective> collective;
    if (n > 1) {
      collective = std::make_unique<RingCollective>(std::move(previous[rank]),
                                                    std::move(next[rank]), rank, n);
    }
    rings.push_back({epoch, rank, fresh, std::move(collective)});
  }
  return rings;
}

}  // namespace leashed
