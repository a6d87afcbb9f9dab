// The format of a trace: what trace_writer.h writes while a training goes on, and replay.h makes it
// again from. Of a training by a mode the records are others, those of mode_trace.h.
//
// A trace is a file of pages of 64 KiB, each the next part of one stream: the header (JSON that the
// core does not look into), the start and the end (floats), and the records of each worker, or by a
// mode of all in stream 0. A page begins with its PageHead. Size and checksum are one word, written
// by one store after the bytes that they stand for. So a page is whole up to its size at every
// moment, and where a process is killed with SIGKILL, everything that its threads had recorded by
// then can be read: what is stored to a mapped file is the system's, and a thread's stores have
// been made in order up to the instruction at which it ended.
//
// No number of an update is recorded: it is that of the version replaced, t_read + τ, and the order
// of all workers' updates is that of their t.
#pragma once

#include <cstddef>
#include <cstdint>

#include "leashed/base/varint.h"
#include "leashed/discipline/publication.h"
#include "leashed/staleness/policy.h"

namespace leashed {

namespace trace {

constexpr std::size_t kPage = std::size_t{1} << 16;

struct PageHead {
  std::uint32_t size;    // bytes that follow, so far
  std::uint32_t crc;     // CRC-32C of stream, place and those bytes
  std::uint32_t stream;  // kHeader, kStart, kEnd, or a worker
  std::uint32_t place;   // among the stream's pages
};
static_assert(sizeof(PageHead) == 16);
constexpr std::size_t kRoom = kPage - sizeof(PageHead);

constexpr std::uint32_t kHeader = 0x5448534c;  // "LSHT", 8 bytes from the file's beginning
constexpr std::uint32_t kStart = 0x80000000;   // theta and the rule's states to begin with
constexpr std::uint32_t kEnd = 0x80000001;     // EndHead, theta, the tables' digests, each of two
                                               // numbers: the training has ended
struct EndHead {
  std::uint64_t t, floats;
};

// A record is a byte, the outcome; as varints (base/varint.h) k and t_read less those of the
// worker's record before, τ, τˢ and the number of failed attempts; and of what was published the
// policy's factors, doubles, where it has any that depend on the run. A record lies in one page.
enum class Outcome : std::uint8_t { published = 1, dropped, excluded, given_up };
constexpr std::size_t longest(std::size_t factors) {
  return 1 + 5 * kVarint + factors * sizeof(double);
}

// How many of a policy's factors a record has: none where they are a function of τ and theta alone.
// In lockstep, where all τ are 0, variables are not told apart.
inline std::size_t factors(const StalenessPolicy& policy, std::size_t blocks, bool lockstep) {
  if (!policy.statistics()) return 0;
  return lockstep || blocks == 0 ? 1 : blocks;
}

}  // namespace trace

// What became of one gradient.
struct TraceRecord {
  trace::Outcome outcome = trace::Outcome::given_up;
  std::uint64_t k = 0;       // of its batch
  std::uint64_t t_read = 0;  // the version it was computed on
  std::uint64_t staleness = 0;
  std::uint64_t staleness_schedule = 0;  // of that; of published ones
  std::uint64_t tries = 0;               // failed

  std::uint64_t t() const { return t_read + staleness; }  // the version replaced
};

}  // namespace leashed
