// All-reduce over a ring of members, each connected with the one before it and the one behind it
// (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
// 2009).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "leashed/net/connection.h"

namespace leashed {

// A member's place. Both connections may be one, where there are two members.
struct RingPlace {
  Connection& previous;
  Connection& next;
  std::size_t rank;     // from 0
  std::size_t members;  // at least 2
};

// The most bytes that a ring's frame has.
inline constexpr std::size_t kRingFragment = std::size_t{256} << 10;

// data ← the members' sum, the same bits for all: part p of so many as there are members is summed
// from member p on, in the order of the ring. Fragments are added as they arrive, and sent on at
// once. Round tells one all-reduce from another; all members give the same, and equal lengths.
// Where it throws (ConnectionError; a frame that is not of this round: Error), data is worth
// nothing, and neither are the connections.
void all_reduce(const RingPlace& place, std::uint16_t kind, std::uint32_t round,
                std::span<float> data, const Deadline& deadline);

}  // namespace leashed
