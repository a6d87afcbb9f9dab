// The records of a training by a mode, in a trace (trace.h): what the server heard, in the order in
// which it did. All else follows from them: the mode's machine is told the same once more.
//
// A record is a byte, the kind in its lower 3 bits (of modes::Event, or kStep) and the node above
// them, or kFar there and what the node is more as a varint. Of an event the nanoseconds since the
// one before follow, of a push also ticket and version less those of the push before (these as
// zigzag numbers, since they go back too), of a command its argument, of the data's end the
// examples that there are. A record lies in one page.
#pragma once

#include "leashed/modes/policy_threads.h"
#include "leashed/policy/server_machine.h"
#include "leashed/trace/trace_reader.h"
#include "leashed/trace/trace_writer.h"

namespace leashed {

struct ModeRecord {
  modes::Event event;  // of a step its node
  Time at;
  bool step;  // what ModeListener::stepped tells
};

namespace trace {

constexpr unsigned kStep = 7, kFar = 31;
constexpr std::size_t kLongestEvent = 1 + 4 * kVarint;

// What a record's numbers are counted from.
struct LastEvent {
  std::int64_t ns = 0;
  std::uint64_t ticket = 0, version = 0;  // of a push
};

}  // namespace trace

class ModeRecorder final : public ModeListener {
 public:
  // To the writer's stream 0.
  explicit ModeRecorder(TraceWriter& writer) : writer_(writer) {}

  void heard(const modes::Event& event, Time at) override;
  void stepped(modes::Node node) override;

 private:
  TraceWriter& writer_;
  trace::LastEvent last_;
};

// The trace must outlive it.
class ModeCursor {
 public:
  explicit ModeCursor(const Trace& trace) : bytes_(trace, 0) {}

  // The next record; false: there is none. Throws Error where it is none.
  bool next(ModeRecord& record);

 private:
  TraceBytes bytes_;
  trace::LastEvent last_;
};

}  // namespace leashed
