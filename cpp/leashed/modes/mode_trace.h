// The records of a training by a mode, in a trace (trace.h): what the server heard, in the order in
// which it did, as lines of an event log (server/event_log.h). All else follows from them: the
// mode's machine is told the same once more. A record is a line, and lies in one page.
//
// Of a training whose workers are elsewhere (cluster/policy_service.h) nobody looks at their own
// models, and no step is recorded but those that no push tells of: all that a node made of a lease
// that it has lost. Its process may be another by then, whose model begins anew. Where there are
// tables its workers look up the rows of a lease some time after that was granted to them, and each
// look-up is recorded; on threads rows are those of the grant.
//
// Of several policy servers that decide alike the first writes it, for all of them: the others hear
// what it has heard. Which pushes had no part at one of them they say at the end, by the numbers of
// events, from 0; of a run that has not come to its end nobody knows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "leashed/modes/policy_threads.h"
#include "leashed/server/event_log.h"
#include "leashed/trace/trace_reader.h"
#include "leashed/trace/trace_writer.h"

namespace leashed {

class ModeRecorder final : public ModeListener {
 public:
  // To the writer's stream 0.
  explicit ModeRecorder(TraceWriter& writer) : writer_(writer) {}

  void heard(const modes::Event& event, Time at) override { record({event, at}); }
  void stepped(modes::Node node) override { noted(node, LogLine::Note::stepped); }
  void noted(modes::Node node, LogLine::Note note) {
    record({{.kind = modes::Event::Kind::push, .node = node}, {}, note});
  }
  // That server, from 1, had no part of the push of that number.
  void missed(std::uint32_t server, std::uint64_t line) {
    record({{.kind = modes::Event::Kind::push, .node = server, .ticket = line},
            {},
            LogLine::Note::missed});
  }

 private:
  void record(const LogLine& line) {
    writer_.record(0, kLongestLine, [&](std::byte* to) { return lines_.put(to, line); });
  }

  TraceWriter& writer_;
  LineWriter lines_;
};

// The trace must outlive it.
class ModeCursor {
 public:
  explicit ModeCursor(const Trace& trace) : bytes_(trace, 0) {}

  // The next record; false: there is none. Throws Error where it is none.
  bool next(LogLine& record) {
    if (!bytes_.more()) return false;
    record = lines_.take(bytes_);
    return true;
  }

 private:
  TraceBytes bytes_;
  LineReader lines_;
};

// Which of several servers had no part of which pushes, as a record's end has it.
class MissedParts {
 public:
  // Throws Error where it is said of none of so many servers, or of what is no push.
  MissedParts(const Trace& trace, std::size_t servers);

  // Whether the server of that number, behind the first, had no part of the push of that number; of
  // the first the push itself says so.
  bool operator()(std::size_t server, std::uint64_t line) const {
    return server > 0 && std::ranges::binary_search(lines_[server - 1], line);
  }

 private:
  std::vector<std::vector<std::uint64_t>> lines_;  // by server, from 1; sorted
};

}  // namespace leashed
