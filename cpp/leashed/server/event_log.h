// What the server of a mode hears, in its order and with its times, as bytes: all that it decides
// follows from that, so whoever is told the same decides the same. There is one encoding, for a
// training's record (modes/mode_trace.h), for a journal, and for servers that follow (follower.h).
//
// A line is a byte, the kind in its lower 3 bits (of modes::Event, or 7 for a note) and the node
// above them, or 31 there and what the node is more as a varint; of a note which one it is, above
// the 24 bits of the node, counted from the step on. Of an event the nanoseconds since
// the one before follow, of a push also ticket and version less those of the push before (these as
// zigzag numbers, since they go back too), of a command its argument, of the data's end the
// examples that there are. A push that was summed elsewhere is a note with the same numbers; what
// was missed is one with its line, and what has come home or is lost with its number.
//
// Lines are numbered from 0. A log that is kept or sent is cut into blocks, of which each can be
// read alone: a BlockHead, little-endian, then its lines, of which the first has its numbers whole.
// A position is the number of a line: who has carried out all before it goes on from there, with
// the block that has it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "leashed/base/varint.h"
#include "leashed/policy/server_machine.h"

namespace leashed {

struct LogLine {
  // What no event says.
  enum class Note : std::uint8_t {
    none,
    // In a record: no server hears it.
    stepped,    // the node has, on a model of its own
    renewed,    // its process is another, whose model begins anew
    looked_up,  // it has the rows of its lease, as they are now
    missed,     // the server of that number, of several, had no part of a push; said at the end
    // In a log that is told, of a mode whose workers sum among themselves (cluster/led_rounds.h).
    summed,   // a push, whose values are in a sum that is made elsewhere
    granted,  // the node is granted what it has leased, with the parameters of now
    home,  // the parameters have come as so many sums have left them, which is the event's ticket
    lost,  // all sums that have not come home are lost, of so many examples, likewise
  };

  // Of a note its node, and what is said above; of what was missed the push's line is the ticket.
  modes::Event event;
  Time at;
  Note note = Note::none;
};

// In place of the version of a push whose values are of no use, since they are not finite: it is
// one that was lost on the way.
inline constexpr std::uint64_t kNoValues = ~std::uint64_t{0};

inline constexpr std::size_t kLongestLine = 1 + 4 * kVarint;

class LineWriter {
 public:
  // Writes at most kLongestLine bytes, and returns their end.
  std::byte* put(std::byte* to, const LogLine& line);

 private:
  friend class LineReader;
  // What the next line's numbers are counted from.
  struct Last {
    std::uint64_t ns = 0;
    std::uint64_t ticket = 0, version = 0;  // of a push
  };

  Last last_;
};

class LineReader {
 public:
  // `bytes` has byte() and number(), a varint, which throw where there is none. What is read has
  // been written by anybody: only that it is a line is known of it.
  template <class Bytes>
  LogLine take(Bytes&& bytes) {
    const unsigned head = bytes.byte();
    const unsigned kind = head & 7;
    LogLine line{{static_cast<modes::Event::Kind>(kind), head >> 3}, {}};
    modes::Event& event = line.event;
    if (event.node == kFar) event.node += static_cast<modes::Node>(bytes.number());
    if (kind == kNote) note(line);
    if (kind != kNote || line.note == LogLine::Note::summed) last_.ns += bytes.number();
    line.at.ns = static_cast<std::int64_t>(last_.ns);
    if (counts(line.note)) event.ticket = bytes.number();
    if (event.kind == modes::Event::Kind::push) {
      event.ticket = last_.ticket += unzigzag(bytes.number());
      event.version = last_.version += unzigzag(bytes.number());
    }
    if (event.kind == modes::Event::Kind::data_end) event.ticket = bytes.number();
    if (event.kind == modes::Event::Kind::command) {
      event.argument = static_cast<std::uint32_t>(bytes.number());
    }
    return line;
  }

 private:
  friend class LineWriter;
  static constexpr unsigned kNote = 7, kFar = 31;
  static constexpr modes::Node kNotes = 8;

  // Of a node that cannot be, where it is none.
  static void note(LogLine& line) {
    const modes::Node which = std::min(line.event.node / modes::kMostNodes, kNotes - 1);
    line.event.node -= which * modes::kMostNodes;
    line.note = static_cast<LogLine::Note>(1 + which);
    if (line.note == LogLine::Note::summed) line.event.kind = modes::Event::Kind::push;
  }
  static constexpr bool counts(LogLine::Note note) {
    return note == LogLine::Note::missed || note >= LogLine::Note::home;
  }

  // Unsigned, so that a difference of any two numbers has one: 0, −1, 1, −2, …
  static constexpr std::uint64_t zigzag(std::uint64_t difference) {
    return difference << 1 ^ (difference >> 63 ? ~std::uint64_t{0} : 0);
  }
  static constexpr std::uint64_t unzigzag(std::uint64_t number) {
    return number >> 1 ^ (number & 1 ? ~std::uint64_t{0} : 0);
  }

  LineWriter::Last last_;
};

struct BlockHead {
  std::uint64_t first;  // its first line's number
  std::uint32_t lines;
  std::uint32_t size;  // bytes that follow
  std::uint32_t crc;   // CRC-32C of the three numbers and those bytes
  std::uint32_t zero;
};
static_assert(sizeof(BlockHead) == 24);

// Bytes that follow a head, at most.
inline constexpr std::size_t kMostBlock = std::size_t{1} << 16;

// The log of who leads: lines are appended before they are acted upon, and blocks are written down
// before anybody is told them.
class EventLog {
 public:
  // Whole, and nobody changes it any more.
  using Block = std::shared_ptr<const std::vector<std::byte>>;

  // first: the number of the first line that is appended, where others have been before.
  explicit EventLog(std::uint64_t first = 0) : first_(first), next_(first) {}

  // Of no note that is a record's. Returns the line's number.
  std::uint64_t append(const modes::Event& event, Time at) { return append({event, at}); }
  std::uint64_t append(const LogLine& line);
  // What has been appended since is a block from now on.
  void close();
  // The blocks that are closed and have that line or later ones. Throws Error where they have been
  // forgotten, and where there have not been as many lines: these were another log's.
  std::vector<Block> from(std::uint64_t line) const;
  // Nobody asks for lines before this one any more.
  void forget(std::uint64_t before);

  std::uint64_t first() const { return first_; }    // line that is kept
  std::uint64_t next() const { return next_; }      // the next line's number
  std::uint64_t closed() const { return closed_; }  // of the first that is in no block yet

 private:
  struct Kept {
    std::uint64_t first, end;
    Block block;
  };

  std::uint64_t first_;  // that is kept
  std::uint64_t next_, closed_ = next_;
  std::deque<Kept> kept_;
  std::vector<std::byte> open_;  // room for a head, and lines
  LineWriter writer_;
};

// A block read: its lines, and the number of the first.
struct ReadBlock {
  std::uint64_t first = 0;
  std::vector<LogLine> lines;

  // Reads the block that `bytes` begins with, in place of what was read before, and returns its
  // size; 0: its end is not there. Throws Error where a byte has changed, where its lines are not
  // as many as it says, and where they are none that a server has heard: notes of records, nodes
  // that cannot be, times that go back.
  std::size_t read(std::span<const std::byte> bytes);
};

}  // namespace leashed
