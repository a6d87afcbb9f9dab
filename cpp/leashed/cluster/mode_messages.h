// What the workers of a mode and a policy server say to each other, in frames (net/frame.h). All
// numbers are little-endian.
//
//   worker                                     server
//   kModeHello     ModeHello                   kModeWelcome  ModeWelcome   first over a connection
//   kModePull      (nothing)                   kGrant        GrantHead, then the parameters, float,
//                                                            where the server holds any; or
//                                              kModeEnd      ModeEnd
//   kModePush      what was computed, a float  (nothing)
//                  for each parameter
//   kModePushPull  the same, and a pull        as to a pull
//   kModeLeave     (nothing)                   (nothing)
//   kModeCommand   ModeCommand                 (nothing)
//   kModeLook      ModeHello                   kModeLooked   ModeLooked, then the parameters, float
//   kLookup        LookupHead, counts, ids     kRows         the rows' values, as of the moment
//   kModeRead      ModeHello, then as kLookup  kRows         likewise
//   kProbe         as sync servers have it
//
// A push's correlation is the ticket of its grant; all else that it stands for the server knows.
// Of a model that reads tables a lookup comes before, once, with the same correlation and with
// `trains`, of the distinct ids that the lease's examples have of each table (row_messages.h,
// without pools); and behind the parameters' gradient a push has those of the rows, as kRows has
// the values. A read is of who looks on, without `trains`: no id gets a row by it. Its answer has
// its correlation.
// A pull is answered when its mode says so, also before a push that came in between is of use.
// Behind the end nothing comes but what answers a hello, a look or a probe. Who looks on is no
// node, and says no hello before.
//
// A connection is one lane of a worker, and for as long as it is there one node of the mode. Who
// has gone, or said that he leaves, has no lease any more: another gets it, and what was pushed
// under it is refused. Whoever comes back says hello once more, with the life of his process: he
// gets the node that he had, and whatever connection he had is of no more use. A life that is over
// is refused. A hello's correlation is the ticket of the lease that the lane has computed last, or
// 0: where that was lost with the connection before, its own model has gone on by it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "leashed/base/choice.h"
#include "leashed/cluster/messages.h"
#include "leashed/cluster/part_messages.h"
#include "leashed/cluster/round_messages.h"
#include "leashed/cluster/row_messages.h"
#include "leashed/policy/server_machine.h"

namespace leashed {

struct ModeHello {
  std::uint64_t run;     // no two runs have the same
  std::uint64_t client;  // a worker's lane: no two at a time have the same
  std::uint64_t life;   // of its process: no other one ever has it, and later ones have larger ones
  std::uint64_t terms;  // mode_terms(): what both must have alike
};

struct ModeWelcome {
  // Of the server: no other one ever has it, but a process that goes on, in the same run, from what
  // this one has kept.
  std::uint64_t boot;
  std::uint64_t dimension;
  std::uint64_t largest_lease;  // examples, at most
  std::uint32_t node;           // which one this is: other lanes have other ones
  std::uint32_t life = 0;       // which one of the node: the number of times that it has left
  std::uint32_t nodes = 0;      // that there may be, of who leads
  std::uint32_t zero = 0;
};

// As modes::Lease and Grant have it (server/parameter_server.h).
struct GrantHead {
  std::uint64_t ticket, number, first, count, token;
  std::uint64_t version;
  std::uint64_t t;
  std::uint32_t n, c;
};

struct ModeCommand {
  std::uint32_t argument;
  std::uint32_t zero = 0;
};

struct ModeEnd {
  std::uint64_t updates;
};

// How far the mode is: counts as of ModeCounts, of the moment of the parameters.
struct ModeLooked {
  std::uint64_t boot;  // as of ModeWelcome
  std::uint64_t updates;
  std::uint64_t applied, late, stale, straggler;
  std::uint64_t lost, departures, exchanges;
  std::uint64_t dimension;
  std::uint64_t position;  // in the log, where there are several servers (part_messages.h)
  RowPublication rows{};   // what became of the gradients of tables' rows
};

static_assert(sizeof(ModeHello) == 32 && sizeof(ModeWelcome) == 40 && sizeof(GrantHead) == 64 &&
              sizeof(ModeCommand) == 8 && sizeof(ModeEnd) == 8 && sizeof(ModeLooked) == 424 &&
              std::is_trivially_copyable_v<GrantHead>);

// Parameters of a model, at most: a frame has no room for more.
inline constexpr std::uint64_t kMostParameters = std::uint64_t{1} << 28;

inline constexpr auto kModeLimits =
    by_kind({{kModeHello, sizeof(ModeHello)},
             {kModeWelcome, sizeof(ModeWelcome)},
             {kModePull, 0},
             {kGrant, sizeof(GrantHead) + kMostParameters * sizeof(float)},
             {kModePush, kMostParameters * sizeof(float) + kRowLimits[kRows]},
             {kModePushPull, kMostParameters * sizeof(float) + kRowLimits[kRows]},
             {kModeLeave, 0},
             {kModeCommand, sizeof(ModeCommand)},
             {kModeEnd, sizeof(ModeEnd)},
             {kModeLook, sizeof(ModeHello)},
             {kModeLooked, sizeof(ModeLooked) + kMostParameters * sizeof(float)},
             {kPartHello, sizeof(PartHello)},
             {kPart, sizeof(PartTail) + kMostParameters * sizeof(float) + kRowLimits[kRows]},
             {kPartPull, sizeof(PartTail) + kMostParameters * sizeof(float) + kRowLimits[kRows]},
             {kPartLook, sizeof(PartLook)},
             {kToldHello, sizeof(ToldHello)},
             {kTold, sizeof(BlockHead) + kMostBlock},
             {kToldAt, sizeof(ToldAt)},
             {kToldDone, (1 + kMostUnfinished) * sizeof(std::uint64_t)},
             {kToldEnd, sizeof(ToldEnd)},
             {kToldEnded, kMostEnded + kMostParameters * sizeof(float)},
             {kLookup, kRowLimits[kLookup]},
             {kModeRead, sizeof(ModeHello) + kRowLimits[kLookup]},
             {kRows, kRowLimits[kRows]},
             {kRound, sizeof(RoundHead) + kMostMembers * sizeof(RoundSeat)},
             {kRoundVote, sizeof(RoundVote)},
             {kRoundAgain, sizeof(RoundEpoch)},
             {kRoundTake, sizeof(RoundEpoch)},
             {kRoundWant, sizeof(RoundEpoch)},
             {kRoundState, sizeof(StateHead) + kMostParameters * sizeof(float)},
             {kRoundRows, kRowLimits[kRows]},
             {kShare, kShareFrame},
             {kProbe, 1}});

// Of all that a worker and its server must have alike: how many parameters, what their model is
// called by both, the mode and the rule with their settings.
std::uint64_t mode_terms(std::uint64_t model, std::size_t dimension, const Choice& mode,
                         const Choice& rule, const Choice& staleness);

}  // namespace leashed
