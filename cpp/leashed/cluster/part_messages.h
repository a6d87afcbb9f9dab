// What is said where a mode has several policy servers, each of which has a part of the parameters.
// With the first, who leads, workers speak as with one alone (mode_messages.h); of the others each
// connection says first what it is.
//
//   worker                                     server behind the first
//   kPartHello     PartHello                   kModeWelcome  ModeWelcome
//   kModePull      (nothing)                   kGrant        as of the first, with this part
//   kPart          its part of what was        (nothing)
//                  computed, then PartTail,
//                  then gradients of rows
//   kPartPull      the same, and a pull        as to a pull
//   kModeLeave     (nothing)                   kModeEnd      once all before it has been heard
//   kPartLook      PartLook                    kModeLooked   once the log has been carried out as
//   far kLookup, kModeRead                         kRows         as with one server, of its rows
//   kProbe         as sync servers have it
//
//   server behind the first                    first
//   kToldHello     ToldHello                   kToldAt       ToldAt: how long the log is
//   kToldAt        ToldAt: what was heard      kTold         a block of the log (event_log.h)
//                                              kToldDone     to one that was started again, behind
//                                                            kToldAt: how many examples have been
//                                                            leased, then the numbers of batches
//                                                            that are not done
//   kToldEnded     ToldEnded, then numbers      kToldEnd      ToldEnd, at the end of a run that is
//                  and its parameters                        recorded
//
// A part's, and a lookup's, correlation is the ticket of its server's grant. Of a model that reads
// tables each server is asked for those of the lease's rows that it has, none among them, once all
// have granted, and a part has the gradients of these. Servers that decide as the first does
// grant unasked, what the log says and under its tickets; the others when they are asked, under
// tickets of their own. The log tells these when all is over; and, once the first is at rest for a
// checkpoint, of each lane its life and how many pushes of that have come, as a push's version and
// ticket.
//
// A server that was started again, and decides as the first does, is told the log from where its
// snapshot is, which the first keeps as long as it may be asked for; of pushes of before it came
// back no part comes any more. One that decides by itself begins at the log's end. What is done,
// and has not come to it or is lost with the process before it, counts there as lost on the way
// (missing), before any lane is let in; and that all is over is told once more.
//
// A lane's connections live and die together: where one ends, the lane closes the others, and what
// was under way over any is of a life that is over. The first's welcome names the life.
#pragma once

#include <cstdint>
#include <type_traits>

#include "leashed/server/event_log.h"

namespace leashed {

struct PartHello {
  std::uint64_t run, client, life, terms;  // as of ModeHello
  std::uint32_t node, node_life;           // as the first's welcome has them
};

// The lease that a part is of, as the first has granted it.
struct PartTail {
  std::uint64_t number, first, count, token;
};

struct PartLook {
  std::uint64_t run, terms;
  std::uint64_t position;  // the first's, where it was looked at
};

// The number of the server, from 1, is its frame's correlation.
struct ToldHello {
  std::uint64_t run, terms;
  std::uint64_t boot;   // of the server that says it
  std::uint64_t heard;  // lines of the log
  // Whether it was started again, and goes on from what it had kept.
  std::uint64_t again = 0;
};

// Batches that are not done, at most, of whose numbers one that was started again is told.
inline constexpr std::uint64_t kMostUnfinished = std::uint64_t{1} << 20;

struct ToldAt {
  std::uint64_t position;
  std::uint64_t boot;  // of who says it
  // Of who has heard so much: what comes before it is not asked for again by one that is started in
  // its place.
  std::uint64_t kept = 0;
};

// What the server is asked for once all lines before that one are carried out; of kNothing: it is
// known.
struct ToldEnd {
  static constexpr std::uint64_t kNothing = ~std::uint64_t{0};
  std::uint64_t position;
};

// Of pushes that a server had no part of, those that it remembers; there may have been more.
inline constexpr std::uint64_t kMostMissed = std::uint64_t{1} << 20;

// Lines that are carried out, and updates that come of them. What follows are the lines of pushes
// of which it had no part, and of each of its tables a digest, of two numbers.
struct ToldEnded {
  std::uint64_t boot, position, updates;
  std::uint64_t missed, digests;  // numbers that follow
};
inline constexpr std::uint64_t kMostEnded = std::uint64_t{16} << 20;

static_assert(sizeof(ToldEnd) == 8 && sizeof(ToldEnded) == 40 &&
              kMostEnded > sizeof(ToldEnded) + (kMostMissed + 1) * sizeof(std::uint64_t));
static_assert(sizeof(PartHello) == 40 && sizeof(PartTail) == 32 && sizeof(PartLook) == 24 &&
              sizeof(ToldHello) == 40 && sizeof(ToldAt) == 24 &&
              std::is_trivially_copyable_v<PartTail>);

}  // namespace leashed
