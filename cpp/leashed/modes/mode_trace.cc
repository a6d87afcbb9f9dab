#include "leashed/modes/mode_trace.h"

#include <algorithm>

namespace leashed {
namespace {

using modes::Event;
using modes::Node;

static_assert(static_cast<unsigned>(Event::Kind::wake) < trace::kStep);

std::byte* put_head(std::byte* to, unsigned kind, Node node) {
  *to++ = static_cast<std::byte>(kind | std::min(node, Node{trace::kFar}) << 3);
  return node < trace::kFar ? to : trace::put(to, node - trace::kFar);
}

// Unsigned, so that a difference of any two numbers has one: 0, −1, 1, −2, …
std::uint64_t zigzag(std::uint64_t difference) {
  return difference << 1 ^ (difference >> 63 ? ~std::uint64_t{0} : 0);
}
std::uint64_t unzigzag(std::uint64_t number) {
  return number >> 1 ^ (number & 1 ? ~std::uint64_t{0} : 0);
}

}  // namespace

void ModeRecorder::heard(const Event& event, Time at) {
  writer_.record(0, trace::kLongestEvent, [&](std::byte* to) {
    to = put_head(to, static_cast<unsigned>(event.kind), event.node);
    to = trace::put(to, static_cast<std::uint64_t>(at.ns - last_.ns));
    last_.ns = at.ns;
    if (event.kind == Event::Kind::push) {
      to = trace::put(to, zigzag(event.ticket - last_.ticket));
      to = trace::put(to, zigzag(event.version - last_.version));
      last_.ticket = event.ticket;
      last_.version = event.version;
    }
    if (event.kind == Event::Kind::data_end) to = trace::put(to, event.ticket);
    return event.kind == Event::Kind::command ? trace::put(to, event.argument) : to;
  });
}

void ModeRecorder::stepped(Node node) {
  writer_.record(0, trace::kLongestEvent,
                 [&](std::byte* to) { return put_head(to, trace::kStep, node); });
}

bool ModeCursor::next(ModeRecord& record) {
  if (!bytes_.more()) return false;
  const unsigned head = bytes_.byte();
  const unsigned kind = head & 7;
  record = {{static_cast<Event::Kind>(kind), head >> 3}, {last_.ns}, kind == trace::kStep};
  Event& event = record.event;
  if (event.node == trace::kFar) event.node += static_cast<Node>(bytes_.number());
  if (record.step) return true;
  record.at.ns = last_.ns += static_cast<std::int64_t>(bytes_.number());
  if (event.kind == Event::Kind::push) {
    event.ticket = last_.ticket += unzigzag(bytes_.number());
    event.version = last_.version += unzigzag(bytes_.number());
  }
  if (event.kind == Event::Kind::data_end) event.ticket = bytes_.number();
  if (event.kind == Event::Kind::command) {
    event.argument = static_cast<std::uint32_t>(bytes_.number());
  }
  return true;
}

}  // namespace leashed
