#include "leashed/net/conversation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "leashed/base/clock.h"
#include "leashed/base/relaxed.h"

namespace leashed {
namespace {

constexpr double kMoment = 0.05;  // seconds between two looks at whether to give up

}  // namespace

void Conversation::adopt(std::size_t lane, std::unique_ptr<Connection> connection,
                         std::uint64_t mark) {
  Lane& to = lanes_[lane];
  const std::lock_guard lock(mutex_);
  to.arriving = std::move(connection);
  to.arriving_mark = mark;
  to.there.store(true, kRelaxed);
}

void Conversation::close(Lane& lane) {
  if (!lane.connection) return;
  traffic_.add(*lane.connection, lane.seen);
  lane.connection.reset();
  lane.seen = {};
}

bool Conversation::renew(std::size_t lane) {
  Lane& renewed = lanes_[lane];
  const std::lock_guard lock(mutex_);
  if (!renewed.arriving) return false;
  close(renewed);
  renewed.connection = std::move(renewed.arriving);
  renewed.mark = renewed.arriving_mark;
  return true;
}

void Conversation::drop(std::size_t lane) {
  Lane& dropped = lanes_[lane];
  close(dropped);
  const std::lock_guard lock(mutex_);
  if (!dropped.arriving) dropped.there.store(false, kRelaxed);
}

void Conversation::wait(std::span<const std::size_t> lanes, std::span<const std::size_t> saying_on,
                        const Deadline& deadline) {
  deadline.check();
  const double left = std::clamp(deadline.at - now(), 0.0, kMoment);
  // Whether act(connection, whether it is to be heard) says so of one.
  const auto any = [&](const auto& act) {
    const auto of = [&](bool to_hear) {
      return [&, to_hear](std::size_t lane) { return act(*lanes_[lane].connection, to_hear); };
    };
    return std::ranges::any_of(lanes, of(true)) || std::ranges::any_of(saying_on, of(false));
  };
  // Whether it is ready already.
  const auto ask = [&](Connection& connection, bool to_hear) {
    const auto events = connection.events(to_hear, connection.sending());
    if (events) waiting_.push_back({connection.socket(), *events, 0});
    return !events;
  };
  const auto sleep = [&] {
    waiting_.clear();
    if (!any(ask)) poll(waiting_.data(), waiting_.size(), static_cast<int>(std::ceil(left * 1e3)));
  };
  // Where there is much to send over a socket, more of it goes at once after a while.
  if (any([](Connection& c, bool) { return !c.shared() && c.sending(); })) return sleep();
  // The system is asked for what comes over sockets; what comes through memory is looked for there.
  waiting_.clear();
  if (any([&](Connection& c, bool to_hear) { return !c.shared() && ask(c, to_hear); })) return;
  const auto ready = [&] {
    return any([](Connection& c, bool to_hear) { return c.in_memory(to_hear); }) ||
           (!waiting_.empty() && poll(waiting_.data(), waiting_.size(), 0) > 0);
  };
  spin_.wait(ready, sleep);
}

void Conversation::count() {
  for (Lane& lane : lanes_) {
    if (lane.connection) traffic_.add(*lane.connection, lane.seen);
  }
}

}  // namespace leashed
