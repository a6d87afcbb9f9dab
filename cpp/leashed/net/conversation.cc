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

void Conversation::wait(std::span<const std::size_t> lanes, const Deadline& deadline) {
  deadline.check();
  waiting_.clear();
  bool sends = false;
  for (const std::size_t lane : lanes) {
    Connection& connection = *lanes_[lane].connection;
    const bool sending = connection.sending();
    const auto events = connection.events(true, sending);
    if (!events) return;
    waiting_.push_back({connection.socket(), *events, 0});
    sends |= sending;
  }
  const double left = std::clamp(deadline.at - now(), 0.0, kMoment);
  const auto look = [&](int milliseconds) {
    return poll(waiting_.data(), waiting_.size(), milliseconds) > 0;
  };
  const auto sleep = [&] { look(static_cast<int>(std::ceil(left * 1e3))); };
  // Where there is much to send, more of it goes at once after a while.
  if (sends) {
    sleep();
  } else {
    spin_.wait([&] { return look(0); }, sleep);
  }
}

void Conversation::count() {
  for (Lane& lane : lanes_) {
    if (lane.connection) traffic_.add(*lane.connection, lane.seen);
  }
}

}  // namespace leashed
