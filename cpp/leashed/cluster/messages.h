// What trainers and servers say to each other, in frames (net/frame.h): its kinds, and what goes to
// sync servers.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>

#include "leashed/cluster/fragments.h"
#include "leashed/net/codec.h"
#include "leashed/net/ring.h"
#include "leashed/net/share.h"

namespace leashed {

enum Kind : std::uint16_t {
  kExchange = 1,
  kReply,
  kReduce,
  kBroadcast,
  kReduceBfloat16,
  kReduceInt8,
  kShare,
  kProbe,  // of one byte; comes back as it is: whether the server answers
  // Of embedding servers (row_messages.h).
  kRowHello,
  kRowWelcome,
  kLookup,
  kRows,
  kPushRows,
  kSettled,
  kDropRows,
  // Of policy servers (mode_messages.h).
  kModeHello,
  kModeWelcome,
  kModePull,
  kGrant,
  kModePush,
  kModePushPull,
  kModeLeave,
  kModeCommand,
  kModeEnd,
  kModeLook,
  kModeLooked,
  // Of several policy servers (part_messages.h).
  kPartHello,
  kPart,
  kPartPull,
  kPartLook,
  kToldHello,
  kTold,
  kToldAt,
  kToldDone,
  kToldEnd,
  kToldEnded,
  kModeRead,
  // Of members who sum gradients, and the policy server that leads them (round_messages.h).
  kRound,
  kRoundVote,
  kRoundAgain,
  kRoundTake,
  kRoundWant,
  kRoundState,
  kRoundRows,
  kKinds,
};

// In front of a fragment's values. The reply's payload is the server's values, alike.
//
// With compression the first exchange of a fragment over a connection is as without, and `keep`
// asks the server to remember both values: they are what each side knows of the other's. From then
// on both send, in the exchange's codec, by how much their value differs from what the other knows,
// and both move that by what comes out (net/feedback.h). So nothing that is lost on the way is lost
// for good; whoever comes new begins with exact values; and a connection that ends takes with it
// what was known over it.
struct ExchangeHead {
  std::uint32_t fragment;  // of the whole vector
  float alpha;  // w ← (1 − alpha) w + alpha θ; where there is no w yet, it becomes θ
  std::uint32_t old_reply;    // with w as it was before, instead of after
  Codec codec = Codec::none;  // none: the values themselves, float32 little-endian
  std::uint16_t keep = 0;     // 1: as above; with values themselves only
};
static_assert(sizeof(ExchangeHead) == 16);

// The kind of a sum's frames, which says how its values are encoded.
constexpr std::uint16_t reduce_kind(Codec codec) {
  switch (codec) {
    case Codec::none:
      break;
    case Codec::bfloat16:
      return kReduceBfloat16;
    case Codec::int8:
      return kReduceInt8;
  }
  return kReduce;
}

// Bytes of payload, at most, by kind; none of a kind that is not named.
struct KindLimit {
  Kind kind;
  std::uint64_t most;
};

constexpr std::array<std::uint64_t, kKinds> by_kind(std::initializer_list<KindLimit> limits) {
  std::array<std::uint64_t, kKinds> found{};
  for (const KindLimit& each : limits) found[each.kind] = each.most;
  return found;
}

inline constexpr std::uint64_t kMostExchange = sizeof(ExchangeHead) + kFragment * sizeof(float);
inline constexpr auto kServerLimits = by_kind(
    {{kExchange, kMostExchange}, {kReply, kMostExchange}, {kShare, kShareFrame}, {kProbe, 1}});
inline constexpr auto kRingLimits = by_kind({{kReduce, kRingFragment},
                                             {kBroadcast, kRingFragment},
                                             {kReduceBfloat16, kRingFragment},
                                             {kReduceInt8, kRingFragment},
                                             {kShare, kShareFrame}});

// A connection that is made for one of the two, over a socket or, where the wish is another than
// `tcp`, as share() says; both sides have the same wish. Takes the socket over, unless it throws.
std::unique_ptr<Connection> connected(int socket, std::span<const std::uint64_t> limits,
                                      bool checked, Transport wish, Role role);

// Whether the other side answers a probe within so many seconds; if not, the connection is of no
// more use.
bool answers(Connection& connection, double patience);

}  // namespace leashed
