#include "leashed/modes/mode_trace.h"

#include "leashed/base/error.h"

namespace leashed {

MissedParts::MissedParts(const Trace& trace, std::size_t servers) : lines_(servers - 1) {
  if (servers == 1) return;
  ModeCursor records(trace);
  std::vector<bool> pushes;  // by event
  for (LogLine line{}; records.next(line);) {
    if (line.note == LogLine::Note::none)
      pushes.push_back(line.event.kind == modes::Event::Kind::push);
    if (line.note != LogLine::Note::missed) continue;
    if (line.event.node == 0 || line.event.node >= servers) {
      throw Error("it is of a policy server that the run had not; use an unaltered copy");
    }
    const std::uint64_t event = line.event.ticket;
    if (event >= pushes.size() || !pushes[event]) {
      throw Error("it is without parts of what was no push; use an unaltered copy");
    }
    lines_[line.event.node - 1].push_back(event);
  }
  for (auto& lines : lines_) std::ranges::sort(lines);
}

}  // namespace leashed
