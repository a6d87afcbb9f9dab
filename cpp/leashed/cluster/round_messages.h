// What a policy server that leads members of an all-reduce (cluster/led_rounds.h), and these
// (cluster/lane_rounds.h), say to each other beside what mode_messages.h has. A member is a lane
// that has pulled. All numbers are little-endian.
//
//   server                                       member
//   kRound       RoundHead, a RoundSeat for      kRoundVote   RoundVote  it has the sum
//                each member, first those        kRoundAgain  RoundEpoch it has none, and nobody is
//                who have tickets, in the                                gone as far as it knows
//                order of their batches          kRoundTake   RoundEpoch it has not that version
//   kRoundState  StateHead, θ and the rule's
//                states, float: as an answer
//   kRoundWant   RoundEpoch: who is asked        kRoundState  as an answer, or before it leaves
//                                                kRoundRows   rows' gradients, as a push has them
//
// Of several policy servers the first leads, and has θ and states whole while there are rounds:
//
//   server behind the first                    first
//   kRoundState  θ and states of its part,     kRoundTake   RoundEpoch: the position of the log at
//                under that position                        which they are wanted
//                                              kRoundState  the same, come home, before the log's
//                                                           line that says so, under its number
//   server behind the first                    member
//   kRoundRows   (nothing), under that ticket: kRoundRows   rows' gradients of its lease
//                they are here
//   kGrant       GrantHead alone: its lease in
//                a round
//
// A round answers a pull as a grant does, and so does the next one of an epoch. The sums go from
// member to member (net/direct_reduce.h), whose numbers there are their nodes.
//
// Of a model that reads tables a member looks up the rows of its lease as of a grant, and again
// where it has that lease anew; their gradients go to the server, under the lease's ticket, before
// the vote, for which those behind the first have to have acknowledged theirs. They are applied
// with the update whose log entry the ticket is in.
#pragma once

#include <cstddef>
#include <cstdint>

namespace leashed {

struct RoundHead {
  std::uint64_t epoch, version;  // as ReducedRound has them (server/reduced_rounds.h)
  std::uint64_t base;            // versions of another one are others, whatever they are called
  std::uint64_t ticket, number, first, count, token;  // this member's lease; no ticket: it has none
  std::uint32_t members, giving;
};

struct RoundSeat {
  std::uint64_t client, life;  // as ModeHello has them
  std::uint32_t node;
  std::uint32_t zero = 0;
};

struct RoundVote {
  std::uint64_t epoch;
  std::uint32_t checksum;
  std::uint32_t zero = 0;
};

struct RoundEpoch {
  std::uint64_t epoch;
};

struct StateHead {
  std::uint64_t epoch, version;  // of the round that it answers; of what comes
  std::uint64_t zero[6];         // what comes begins on a line
};

static_assert(sizeof(RoundHead) == 72 && sizeof(RoundSeat) == 24 && sizeof(RoundVote) == 16 &&
              sizeof(RoundEpoch) == 8 && sizeof(StateHead) == 64);

inline constexpr std::size_t kStateFloats = sizeof(StateHead) / sizeof(float);

// Each is connected with each.
inline constexpr std::uint64_t kMostMembers = 256;

}  // namespace leashed
