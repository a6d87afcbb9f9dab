#include "leashed/cluster/server_links.h"

#include <poll.h>

#include <algorithm>
#include <cmath>

#include "leashed/base/clock.h"
#include "leashed/net/feedback.h"

namespace leashed {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr double kLook = 0.05;  // seconds between two looks at whether to give up

}  // namespace

ServerLinks::ServerLinks(std::size_t dimension, const std::vector<std::uint32_t>& owner,
                         std::size_t servers, std::size_t parts, Codec codec)
    : dimension_(dimension), parts_(parts), codec_(codec), lanes_(servers), kept_(owner.size()) {
  if (owner.size() != fragments_of(dimension)) {
    throw Error("there must be an owner for each of the " +
                std::to_string(fragments_of(dimension)) + " fragments");
  }
  for (std::uint32_t f = 0; f < owner.size(); ++f) lanes_.at(owner[f]).fragments.push_back(f);
  if (codec_ == Codec::none) return;
  told_.resize(dimension);
  heard_.resize(dimension);
}

void ServerLinks::adopt(std::size_t server, int socket, bool checked, Transport wish) {
  Lane& lane = lanes_.at(server);  // before the socket is taken over
  auto connection = connected(socket, kServerLimits, checked, wish, Role::offers);
  const std::lock_guard lock(mutex_);
  lane.arriving = std::move(connection);
  lane.there.store(true, kRelaxed);
}

bool ServerLinks::missing(std::size_t server) const {
  const Lane& lane = lanes_.at(server);
  return !lane.fragments.empty() && !lane.there.load(kRelaxed);
}

Traffic ServerLinks::traffic() const { return {out_.load(kRelaxed), in_.load(kRelaxed)}; }

void ServerLinks::drop(Lane& lane) {
  lane.connection.reset();
  const std::lock_guard lock(mutex_);
  if (!lane.arriving) lane.there.store(false, kRelaxed);
}

void ServerLinks::send(Lane& lane, const float* theta) {
  const std::uint32_t index = lane.asked[lane.sent++];
  const auto [begin, end] = fragment(index, dimension_);
  const std::span<const float> values(theta + begin, end - begin);
  std::span<const std::byte> payload = std::as_bytes(values);
  const bool keeps = codec_ != Codec::none && !kept_[index];
  lane.head = {index, alpha_, old_reply_, kept_[index] ? codec_ : Codec::none, keeps};
  if (keeps) std::copy(values.begin(), values.end(), told_.data() + begin);
  if (kept_[index]) {
    lane.encoded.resize(encoded_size(codec_, values.size()));
    tell(codec_, values, std::span(told_).subspan(begin, values.size()), lane.encoded.data());
    payload = lane.encoded;
  }
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span(&lane.head, 1)), payload};
  lane.connection->begin({.kind = kExchange, .correlation = index}, parts);
}

bool ServerLinks::receive(Lane& lane, float* other) {
  const std::uint32_t index = lane.asked[lane.received];
  const auto [begin, end] = fragment(index, dimension_);
  const std::span<float> values(other + begin, end - begin);
  const std::size_t bytes = encoded_size(kept_[index] ? codec_ : Codec::none, values.size());
  const auto header = lane.connection->take([&](const FrameHeader& h) {
    // (Nor before all of it: what is sent must not be in use when this exchange is over.)
    const std::size_t gone = lane.sent - (lane.connection->sending() ? 1 : 0);
    if (h.kind != kReply || h.correlation != index || h.length != bytes || lane.received >= gone) {
      throw Error("a sync server has answered something else than was asked");
    }
    if (!kept_[index]) return std::as_writable_bytes(values);
    lane.reply.resize(bytes);
    return std::span(lane.reply);
  });
  if (!header) return false;
  ++lane.received;
  if (codec_ == Codec::none) return true;
  const std::span<float> heard = std::span(heard_).subspan(begin, values.size());
  if (kept_[index]) {
    decode_and_add(codec_, lane.reply.data(), heard);
    std::copy(heard.begin(), heard.end(), values.begin());
  } else {
    std::copy(values.begin(), values.end(), heard.begin());
    kept_[index] = true;
  }
  return true;
}

bool ServerLinks::step(Lane& lane, const float* theta, float* other) {
  Connection& c = *lane.connection;
  bool something = false;
  while (c.sending() || lane.sent < lane.asked.size()) {
    if (!c.sending()) {
      send(lane, theta);
      something = true;
    }
    if (!c.flush()) break;
  }
  while (lane.received < lane.asked.size() && receive(lane, other)) something = true;
  return something;
}

bool ServerLinks::exchange(const float* theta, float alpha, bool old_reply, std::uint64_t turn,
                           float* other, Covered& done, const Deadline& deadline) {
  alpha_ = alpha;
  old_reply_ = old_reply;
  bool somebody = false;
  for (Lane& lane : lanes_) {
    lane.asked.clear();
    lane.sent = lane.received = 0;
    {
      const std::lock_guard lock(mutex_);
      if (lane.arriving) {
        lane.connection = std::move(lane.arriving);
        for (const std::uint32_t f : lane.fragments) kept_[f] = false;
      }
    }
    if (!lane.connection) continue;
    somebody = true;
    for (const std::uint32_t f : lane.fragments) {
      if (f % parts_ == turn % parts_) lane.asked.push_back(f);
    }
  }
  const auto give_up = [this] {  // what has not come, with its connection
    for (Lane& lane : lanes_) {
      if (lane.received == lane.asked.size()) continue;
      drop(lane);
      lane.asked.resize(lane.received);
    }
  };
  std::vector<pollfd> waiting;
  waiting.reserve(lanes_.size());  // now: what has been sent must not be left on its way
  for (bool finished = false; !finished;) {
    finished = true;
    bool something = false;
    for (Lane& lane : lanes_) {
      if (lane.received == lane.asked.size()) continue;
      Connection& c = *lane.connection;
      const std::uint64_t sent = c.sent(), received = c.received();
      bool alive = true;
      try {
        something |= step(lane, theta, other);
      } catch (const std::exception&) {  // this server's; others go on
        alive = false;
      }
      out_.fetch_add(c.sent() - sent, kRelaxed);
      in_.fetch_add(c.received() - received, kRelaxed);
      if (!alive) {
        drop(lane);
        lane.asked.resize(lane.received);
      }
      finished &= lane.received == lane.asked.size();
    }
    if (finished) break;
    try {
      deadline.check();
    } catch (const ConnectionError&) {
      give_up();
      break;
    } catch (...) {  // go_on's own, or no memory for the reason
      give_up();
      throw;
    }
    if (something) continue;
    waiting.clear();
    for (Lane& lane : lanes_) {
      if (lane.received == lane.asked.size()) continue;
      Connection& c = *lane.connection;
      if (const auto events = c.events(true, c.sending())) {
        waiting.push_back({c.socket(), *events, 0});
      } else {
        something = true;
      }
    }
    if (something) continue;
    const double left = std::clamp(deadline.at - now(), 0.0, kLook);
    poll(waiting.data(), waiting.size(), static_cast<int>(std::ceil(left * 1e3)));
  }
  std::vector<std::uint32_t> came;
  for (const Lane& lane : lanes_) came.insert(came.end(), lane.asked.begin(), lane.asked.end());
  std::sort(came.begin(), came.end());
  for (const std::uint32_t f : came) done.add(fragment(f, dimension_));
  return somebody;
}

}  // namespace leashed
