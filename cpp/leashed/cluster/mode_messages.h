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
//   kProbe         as sync servers have it
//
// A push's correlation is the ticket of its grant; all else that it stands for the server knows.
// A pull is answered when its mode says so, also before a push that came in between is of use.
// Behind the end nothing comes but what answers a hello, a look or a probe. Who looks on is no
// node, and says no hello before.
//
// A connection is one lane of a worker, and for as long as it is there one node of the mode. Who
// has gone, or said that he leaves, has no lease any more: another gets it, and what was pushed
// under it is refused. Whoever comes back says hello once more, with the life of his process: he
// gets the node that he had, and whatever connection he had is of no more use. A life that is over
// is refused.
#pragma once

#include <cstdint>
#include <type_traits>

#include "leashed/base/choice.h"
#include "leashed/cluster/messages.h"
#include "leashed/policy/server_machine.h"

namespace leashed {

struct ModeHello {
  std::uint64_t run;     // no two runs have the same
  std::uint64_t client;  // a worker's lane: no two at a time have the same
  std::uint64_t life;   // of its process: no other one ever has it, and later ones have larger ones
  std::uint64_t terms;  // mode_terms(): what both must have alike
};

struct ModeWelcome {
  std::uint64_t boot;  // of the server's process: no other one ever has it
  std::uint64_t dimension;
  std::uint64_t largest_lease;  // examples, at most
  std::uint32_t node;           // which one this is: other lanes have other ones
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
};

static_assert(sizeof(ModeHello) == 32 && sizeof(ModeWelcome) == 32 && sizeof(GrantHead) == 64 &&
              sizeof(ModeCommand) == 8 && sizeof(ModeEnd) == 8 && sizeof(ModeLooked) == 80 &&
              std::is_trivially_copyable_v<GrantHead>);

// Parameters of a model, at most: a frame has no room for more.
inline constexpr std::uint64_t kMostParameters = std::uint64_t{1} << 28;

inline constexpr auto kModeLimits =
    by_kind({{kModeHello, sizeof(ModeHello)},
             {kModeWelcome, sizeof(ModeWelcome)},
             {kModePull, 0},
             {kGrant, sizeof(GrantHead) + kMostParameters * sizeof(float)},
             {kModePush, kMostParameters * sizeof(float)},
             {kModePushPull, kMostParameters * sizeof(float)},
             {kModeLeave, 0},
             {kModeCommand, sizeof(ModeCommand)},
             {kModeEnd, sizeof(ModeEnd)},
             {kModeLook, sizeof(ModeHello)},
             {kModeLooked, sizeof(ModeLooked) + kMostParameters * sizeof(float)},
             {kShare, kShareFrame},
             {kProbe, 1}});

// Of all that a worker and its server must have alike: how many parameters, what their model is
// called by both, the mode and the rule with their settings.
std::uint64_t mode_terms(std::uint64_t model, std::size_t dimension, const Choice& mode,
                         const Choice& rule, const Choice& staleness);

}  // namespace leashed
