#include "leashed/cluster/remote_lanes.h"

#include <chrono>
#include <iterator>
#include <span>
#include <thread>

#include "leashed/base/error.h"

namespace leashed {
namespace {

constexpr double kLastWords = 2;  // seconds in which pushes are settled of a run that is stopped
constexpr std::chrono::milliseconds kAway{2};  // between two looks for a connection

template <class T>
void say_one(Conversation& conversation, std::size_t lane, const FrameHeader& header,
             const T& what) {
  const auto part = std::as_bytes(std::span(&what, 1));
  const std::span<const std::byte> parts[] = {part};
  conversation.say(lane, header, parts);
}

}  // namespace

bool RemoteRows::step(Slot& slot) {
  bool something = false;
  for (std::size_t s = 0; s < plan_.servers; ++s) {
    if (serves(slot, s)) something |= step(slot, s);
  }
  return something;
}

bool RemoteRows::step(Slot& slot, std::size_t server) {
  Lane& lane = slot.lanes[server];
  bool something = false;
  if (slot.conversation.renew(server)) {
    for (Operation& each : lane.operations) each.said = false;
    lane.state = Lane::State::hello;
    lane.hello = {slot.client, plan_.life, digests_[server]};
    lane.heard = now();
    something = true;
    try {
      say_one(slot.conversation, server, {.kind = kRowHello}, lane.hello);
    } catch (const std::exception& error) {
      cut(slot, server, error.what());
    }
  }
  if (!slot.conversation.has(server)) return something;
  try {
    while (slot.conversation.free(server) && lane.state == Lane::State::open) {
      const auto next =
          std::ranges::find_if(lane.operations, [](const Operation& each) { return !each.said; });
      if (next == lane.operations.end()) break;
      const bool asked_again = next != lane.operations.begin() &&
                               std::prev(next)->kind == Operation::Kind::again &&
                               std::prev(next)->batch == next->batch;
      if (next->kind == Operation::Kind::push && !asked_again &&
          next->batch->parts[server].boot != lane.boot) {  // the one that had its rows is gone
        ++next->batch->under_way;
        const Operation again{Operation::Kind::again, next->batch, next->ticket};
        lane.operations.insert(next, again);
        continue;
      }
      if (std::ranges::none_of(lane.operations, &Operation::said)) lane.heard = now();
      say(slot, server, *next);
      next->said = true;
      something = true;
      if (next->kind == Operation::Kind::drop) lane.operations.erase(next);
    }
    while (hear(slot, server)) something = true;
  } catch (const std::exception& error) {
    cut(slot, server, error.what());
  }
  return something;
}

void RemoteRows::say(Slot& slot, std::size_t server, Operation& operation) {
  Lane& lane = slot.lanes[server];
  using Kind = Operation::Kind;
  if (operation.kind == Kind::drop) {
    return say_one(slot.conversation, server, {.kind = kDropRows, .correlation = operation.ticket},
                   lane.drop);
  }
  RemoteBatch::Part& part = operation.batch->parts[server];
  if (operation.kind == Kind::push) {
    return slot.conversation.say(server, {.kind = kPushRows, .correlation = operation.ticket},
                                 part.pushed);
  }
  const auto ask = std::as_bytes(std::span(part.ask));
  const std::span<const std::byte> parts[] = {ask, part.pools};
  slot.conversation.say(server, {.kind = kLookup, .correlation = operation.ticket}, parts);
}

bool RemoteRows::hear(Slot& slot, std::size_t server) {
  Lane& lane = slot.lanes[server];
  using Kind = Operation::Kind;
  const auto wrong = [] {
    return Error("an embedding server has answered something else than was asked");
  };
  const auto place = [&](const FrameHeader& header) -> std::span<std::byte> {
    if (lane.state == Lane::State::hello) {
      if (header.kind != kRowWelcome || header.length != sizeof lane.welcome) throw wrong();
      return std::as_writable_bytes(std::span(&lane.welcome, 1));
    }
    if (lane.operations.empty() || !lane.operations.front().said) throw wrong();
    const Operation& asked = lane.operations.front();
    if (header.correlation != asked.ticket) throw wrong();
    if (asked.kind == Kind::push) {
      if (header.kind != kSettled || header.length != sizeof lane.settled) throw wrong();
      return std::as_writable_bytes(std::span(&lane.settled, 1));
    }
    RemoteBatch::Part& part = asked.batch->parts[server];
    if (header.kind != kRows || header.length != part.bytes) throw wrong();
    return {reinterpret_cast<std::byte*>(part.values.data()), part.bytes};
  };
  const auto header = slot.conversation.hear(server, place);
  if (!header) return false;
  lane.heard = now();
  if (lane.state == Lane::State::hello) return welcomed(slot, server), true;
  const Operation over = lane.operations.front();
  RemoteBatch::Part& part = over.batch->parts[server];
  if (over.kind == Kind::push) {
    if (lane.settled.applied < over.number || lane.settled.settling > Settling::expired) {
      throw wrong();
    }
    lane.applied = over.number;
    lane.in_rows = lane.settled.in_rows;
    slot.settle(lane.settled.settling);
    slot.publication.add(lane.settled.publication);
  } else {
    if (!makes_sense(*over.batch, server)) throw wrong();
    part.there = true;
    part.boot = lane.boot;
  }
  lane.operations.pop_front();
  --over.batch->under_way;
  return true;
}

// What is known of the server now. The one that there was is asked once more what became of the
// pushes whose answers were lost; another one has those up to the last that it tells, with what
// became of them.
void RemoteRows::welcomed(Slot& slot, std::size_t server) {
  Lane& lane = slot.lanes[server];
  const std::uint64_t before = lane.boot, applied = lane.welcome.applied;
  const auto& outcomes = lane.welcome.outcomes;
  const InRows had = lane.in_rows, has = lane.welcome.in_rows;
  const auto there = [applied](const Operation& each) {
    return each.kind == Operation::Kind::push && each.number <= applied;
  };
  if (before == lane.welcome.boot) {
    lane.state = Lane::State::open;
    return;
  }
  for (const Operation& each : lane.operations) {
    if (!there(each) || outcomes[applied - each.number]) continue;
    throw Error("an embedding server does not say what became of a push that it has");
  }
  const bool lost = before != 0 && applied < lane.applied;
  if (lost && (has.pushes > had.pushes || has.examples > had.examples)) {
    throw Error("an embedding server has more of the pushes before than there were");
  }
  lane.state = Lane::State::open;
  lane.boot = lane.welcome.boot;
  if (lost) {
    slot.lost.fetch_add(had.pushes - has.pushes, kRelaxed);
    slot.lost_examples.fetch_add(had.examples - has.examples, kRelaxed);
  }
  lane.applied = applied;
  lane.in_rows = has;
  std::erase_if(lane.operations, [&](const Operation& each) {
    if (!there(each)) return false;
    --each.batch->under_way;
    slot.settle(*outcomes[applied - each.number]);
    return true;
  });
}

void RemoteRows::cut(Slot& slot, std::size_t server, const std::string& why) {
  Lane& lane = slot.lanes[server];
  lane.state = Lane::State::away;
  lane.why = why;
  // A batch whose rows were to be looked up once more is, where its push is said.
  std::erase_if(lane.operations, [](const Operation& each) {
    if (each.kind == Operation::Kind::again) --each.batch->under_way;
    return each.kind == Operation::Kind::again;
  });
  for (Operation& each : lane.operations) each.said = false;
  slot.cuts.fetch_add(1, kRelaxed);
  slot.conversation.drop(server);
}

bool RemoteRows::wait(Slot& slot, const Wait& how, const std::function<bool()>& done) {
  const double begin = now();
  Deadline deadline = Deadline::in(how.seconds);
  bool fresh = true, stopped = false;
  for (;;) {
    const bool something = step(slot);
    if (done()) break;
    if (slot.watch) (*slot.watch)();
    if (how.keep_on) {
      if (!(*how.keep_on)()) return false;
    } else if (!stopped && stopped_ && stopped_->load(kRelaxed)) {
      stopped = true;
      // (Workers of tables apart are left one after the other.)
      const double since = plan_.apart ? forsaken_at_.load(kRelaxed) : 0;
      if (slot.stopped == 0) slot.stopped = since > 0 ? since : now();
      deadline.at = std::min(deadline.at, slot.stopped + how.once_stopped);
    }
    if (!stopped) deadline.at = std::max(deadline.at, expected_.load(kRelaxed) + how.seconds);
    if (now() >= deadline.at) {
      if (stopped) return false;
      give_up(slot, now() - begin);
    }
    if (something) continue;
    if (plan_.idle) {
      plan_.idle();
      continue;
    }
    slot.waiting.clear();
    for (std::size_t s = 0; s < plan_.servers; ++s) {
      Lane& lane = slot.lanes[s];
      if (lane.operations.empty() && lane.state == Lane::State::open) continue;
      if (!slot.conversation.has(s)) continue;
      if (fresh) lane.heard = std::max(lane.heard, begin);
      if (now() - lane.heard > plan_.timeout) {
        cut(slot, s, "it has been silent");
      } else {
        slot.waiting.push_back(s);
      }
    }
    fresh = false;
    const bool away = std::ranges::any_of(slot.lanes, [&](const Lane& lane) {
      return lane.state == Lane::State::away && !lane.operations.empty();
    });
    // Of one that is away nothing comes to wake us.
    if (away) {
      std::this_thread::sleep_for(kAway);
    } else if (!slot.waiting.empty()) {
      try {
        slot.conversation.wait(slot.waiting, deadline);
      } catch (const ConnectionError&) {  // late: looked at above
      }
    }
  }
  slot.conversation.count();
  return true;
}

void RemoteRows::give_up(const Slot& slot, double seconds) const {
  std::string whom;
  for (std::size_t s = 0; s < plan_.servers; ++s) {
    const Lane& lane = slot.lanes[s];
    if (lane.operations.empty()) continue;
    if (!whom.empty()) whom += "; ";
    whom += "embedding server " + std::to_string(s);
    if (lane.state != Lane::State::open) whom += " (" + lane.why + ")";
  }
  throw RowsAway(whom + " has not answered for " + std::to_string(static_cast<int>(seconds)) +
                 " s, and training cannot go on without its rows: start it again, or allow it more "
                 "patience");
}

template <class Which>
void RemoteRows::abandon(Slot& slot, std::size_t server, const Which& which) {
  std::erase_if(slot.lanes[server].operations, [&](const Operation& each) {
    if (!which(each)) return false;
    if (each.batch) --each.batch->under_way;
    if (each.kind == Operation::Kind::push) slot.unsettled.fetch_add(1, kRelaxed);
    return true;
  });
}

// The batch's memory is wanted: nobody hears any more what becomes of it.
void RemoteRows::forget(Slot& slot, const RemoteBatch& rows, const std::string& why) {
  for (std::size_t s = 0; s < plan_.servers; ++s) {
    const auto of = [&rows](const Operation& each) { return each.batch == &rows; };
    if (std::ranges::none_of(slot.lanes[s].operations, of)) continue;
    cut(slot, s, why);
    abandon(slot, s, of);
  }
}

void RemoteRows::finish(Slot& slot, const RemoteBatch& rows) {
  if (rows.under_way == 0) return;
  const double begin = now();
  if (!wait(slot, {plan_.patience, kLastWords}, [&rows] { return rows.under_way == 0; })) {
    forget(slot, rows, "the run was stopped");
  }
  Slot::count_since(begin, slot.settling);
}

void RemoteRows::let_go(Slot& slot, std::uint64_t ticket) {
  std::erase(slot.held, ticket);
  for (std::size_t s = 0; s < plan_.servers; ++s) {
    if (!serves(slot, s)) continue;
    slot.lanes[s].operations.push_back({Operation::Kind::drop, nullptr, ticket});
  }
}

bool RemoteRows::finish(std::size_t worker) {
  Slot& slot = *slots_[worker];
  const double begin = now();
  const auto over = [&slot] {
    return std::ranges::all_of(slot.lanes,
                               [](const Lane& lane) { return lane.operations.empty(); });
  };
  const bool done = wait(slot, {plan_.patience, kLastWords}, over);
  Slot::count_since(begin, slot.settling);
  return done;
}

RowPublication RemoteRows::leave(std::size_t worker) {
  Slot& slot = *slots_[worker];
  const double begin = now();
  while (!slot.held.empty()) let_go(slot, slot.held.back());  // what was looked up ahead
  const auto over = [&slot] {
    return std::ranges::all_of(slot.lanes,
                               [](const Lane& lane) { return lane.operations.empty(); });
  };
  try {
    wait(slot, {plan_.patience, kLastWords}, over);
  } catch (const std::exception&) {  // what is left is counted
  }
  for (std::size_t s = 0; s < plan_.servers; ++s) {
    abandon(slot, s, [](const Operation&) { return true; });
    slot.conversation.drop(s);
  }
  slot.left.store(true, kRelaxed);
  Slot::count_since(begin, slot.settling);
  return std::exchange(slot.publication, {});
}

}  // namespace leashed
