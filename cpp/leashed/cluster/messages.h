// What trainers and sync servers say to each other, in frames (net/frame.h).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "leashed/cluster/fragments.h"
#include "leashed/net/ring.h"
#include "leashed/net/share.h"

namespace leashed {

enum Kind : std::uint16_t { kExchange = 1, kReply, kReduce, kBroadcast, kShare };

// In front of a fragment's values, float32 little-endian. The reply's payload is the server's
// values.
struct ExchangeHead {
  std::uint32_t fragment;  // of the whole vector
  float alpha;  // w ← (1 − alpha) w + alpha θ; where there is no w yet, it becomes θ
  std::uint32_t old_reply;  // with w as it was before, instead of after
  std::uint32_t zero = 0;
};
static_assert(sizeof(ExchangeHead) == 16);

// Bytes of payload, at most, by kind.
inline constexpr std::uint64_t kMostExchange = sizeof(ExchangeHead) + kFragment * sizeof(float);
inline constexpr std::array<std::uint64_t, 6> kServerLimits{0, kMostExchange, kMostExchange, 0,
                                                            0, kShareFrame};
inline constexpr std::array<std::uint64_t, 6> kRingLimits{
    0, 0, 0, kRingFragment, kRingFragment, kShareFrame};

// A connection that is made for one of the two, over a socket or, where the wish is another than
// `tcp`, as share() says; both sides have the same wish. Takes the socket over, unless it throws.
std::unique_ptr<Connection> connected(int socket, std::span<const std::uint64_t> limits,
                                      bool checked, Transport wish, Role role);

}  // namespace leashed
