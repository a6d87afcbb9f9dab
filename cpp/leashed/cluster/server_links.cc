#include "leashed/cluster/server_links.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "leashed/base/clock.h"
#include "leashed/base/relaxed.h"
#include "leashed/net/feedback.h"
#include "leashed/update/kernels.h"

namespace leashed {
namespace {

using Contact = Standing::Contact;

constexpr std::uint64_t kMostDoublings = 4;  // of the pause for a server that is late again
// Fragments that are under way before any has come, and then one more for each that comes: of what
// a slow server has not answered when time is over there is not much more than of what it has.
constexpr std::size_t kUnderWay = 8;

// FNV-1a, of whole floats.
std::uint64_t digest_of(std::span<const float> values) {
  std::uint64_t digest = 0xcbf29ce484222325;
  for (const float value : values) {
    digest = (digest ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001b3;
  }
  return digest;
}

}  // namespace

void Offers::add(std::span<const float> values) {
  const std::uint64_t digest = digest_of(values);
  if (!has(digest)) digests_[added_++ % digests_.size()] = digest;
}

bool Offers::has(std::span<const float> values) const { return has(digest_of(values)); }

bool Offers::has(std::uint64_t digest) const {
  const auto end = digests_.begin() + std::min(added_, digests_.size());
  return std::find(digests_.begin(), end, digest) != end;
}

ServerLinks::ServerLinks(std::size_t dimension, const std::vector<std::uint32_t>& owner,
                         std::size_t servers, std::size_t parts, Codec codec,
                         std::shared_ptr<Standings> standings)
    : dimension_(dimension),
      parts_(parts),
      codec_(codec),
      lanes_(servers),
      conversation_(servers),
      kept_(owner.size()),
      other_(dimension),
      before_(owner.size()),
      first_(owner.size()),
      under_way_(owner.size()),
      standings_(standings ? std::move(standings)
                           : std::make_shared<Standings>(servers, owner.size())) {
  if (owner.size() != fragments_of(dimension)) {
    throw Error("there must be an owner for each of the " +
                std::to_string(fragments_of(dimension)) + " fragments");
  }
  for (std::uint32_t f = 0; f < owner.size(); ++f) lanes_.at(owner[f]).fragments.push_back(f);
  if (codec_ == Codec::none) return;
  told_.resize(dimension);
  heard_.resize(dimension);
}

bool ServerLinks::adopt(std::size_t server, int socket, bool checked, Transport wish,
                        double patience) {
  Lane& lane = lanes_.at(server);  // before the socket is taken over
  // Before it is asked: where it is late meanwhile, this connection is dropped with the others.
  const std::uint64_t after = lateness(lane).times.load(kRelaxed);
  auto connection = connected(socket, kServerLimits, checked, wish, Role::offers);
  if (patience > 0 && !answers(*connection, patience)) return false;
  conversation_.adopt(server, std::move(connection), after);
  return true;
}

bool ServerLinks::missing(std::size_t server) const {
  const Lane& lane = lanes_.at(server);
  return !lane.fragments.empty() && !conversation_.there(server) &&
         now() >= standings_->servers[server].until.load(kRelaxed);
}

Transfers ServerLinks::transfers() const {
  const auto whole = [this](Codec codec) {
    Traffic bytes;
    for (std::size_t f = 0; f < kept_.size(); ++f) {
      const auto [begin, end] = fragment(f, dimension_);
      const std::size_t reply = kFrameHeader + encoded_size(codec, end - begin);
      bytes.out += reply + sizeof(ExchangeHead);
      bytes.in += reply;
    }
    return bytes;
  };
  return exact_.transfers(traffic().own(), whole(Codec::none), whole(codec_));
}

void ServerLinks::forget(Lane& lane) {
  lane.asked.resize(lane.received);
  lane.sent = lane.received;
}

void ServerLinks::drop(Lane& lane) {
  forget(lane);
  conversation_.drop(server_of(lane));
}

// The other threads drop their connections with it, when they come to an exchange: whether the
// server answers is found out beside them. Where it does, and is late again, there is a pause, of
// once, twice, … what was waited.
void ServerLinks::late(Lane& lane, double seconds) {
  Lateness& shared = lateness(lane);
  std::uint64_t known = conversation_.mark(server_of(lane));
  if (!shared.times.compare_exchange_strong(known, known + 1, kRelaxed)) return;  // known already
  const std::uint64_t before = shared.in_vain.fetch_add(1, kRelaxed);
  if (before == 0) return;
  const auto doublings = static_cast<int>(std::min(before - 1, kMostDoublings));
  shared.until.store(now() + std::ldexp(seconds, doublings), kRelaxed);
}

void ServerLinks::heard(Lane& lane) {
  lateness(lane).in_vain.store(0, kRelaxed);
  lateness(lane).until.store(0, kRelaxed);
}

bool ServerLinks::keep(Lane& lane) {
  if (lane.received == 0) return false;
  try {
    conversation_.keep(server_of(lane));
  } catch (const std::bad_alloc&) {
    return false;
  }
  heard(lane);
  return true;
}

bool ServerLinks::claim(std::uint32_t index) {
  Contact none = Contact::none;
  auto& contact = standings_->fragments[index].contact;
  if (!contact.compare_exchange_strong(none, Contact::under_way, std::memory_order_acquire,
                                       kRelaxed)) {
    return false;
  }
  claimed_.push_back(index);
  return true;
}

void ServerLinks::give_back() {
  for (const std::uint32_t f : claimed_) {
    auto& contact = standings_->fragments[f].contact;
    if (contact.load(kRelaxed) == Contact::under_way) {
      contact.store(Contact::none, std::memory_order_release);
    }
  }
  claimed_.clear();
}

void ServerLinks::renew(Lane& lane) {
  const std::size_t server = server_of(lane);
  if (conversation_.renew(server)) {
    forget(lane);
    for (const std::uint32_t f : lane.fragments) kept_[f] = false;
  }
  if (conversation_.has(server) &&
      conversation_.mark(server) != lateness(lane).times.load(kRelaxed)) {
    drop(lane);
  }
  const auto begin = lane.asked.begin();
  lane.asked.erase(begin + static_cast<std::ptrdiff_t>(lane.sent), lane.asked.end());
  lane.asked.erase(begin, begin + static_cast<std::ptrdiff_t>(lane.received));
  lane.sent = lane.asked.size();
  lane.received = 0;
}

bool ServerLinks::begin(std::uint64_t turn) {
  give_back();  // where an exception has ended an exchange
  wanted_.clear();
  came_.clear();
  all_ = true;
  bool something = false;
  for (Lane& lane : lanes_) {
    renew(lane);
    const bool connected = conversation_.has(server_of(lane));
    for (const std::uint32_t f : lane.asked) {
      under_way_[f] = true;
      first_[f] = before_[f] && claim(f);
    }
    order_.clear();
    for (const std::uint32_t f : lane.fragments) {
      if (f % parts_ != turn % parts_) continue;
      const Standing& standing = standings_->fragments[f];
      if (connected && !under_way_[f]) {
        const bool made = standing.contact.load(std::memory_order_acquire) == Contact::made;
        first_[f] = before_[f] = !made && claim(f);
        if (!made && !first_[f]) continue;  // another thread's
        order_.emplace_back(~standing.missed.load(kRelaxed), f);
      }
      wanted_.push_back(f);
    }
    std::sort(order_.begin(), order_.end());
    for (const std::uint32_t f : lane.asked) under_way_[f] = false;
    for (const auto& [missed, f] : order_) lane.asked.push_back(f);
    something |= !lane.asked.empty();
  }
  return something;
}

void ServerLinks::end() {
  for (const std::uint32_t f : came_) {
    if (first_[f]) standings_->fragments[f].contact.store(Contact::made, std::memory_order_release);
  }
  give_back();
}

void ServerLinks::send(Lane& lane, const float* theta) {
  const std::uint32_t index = lane.asked[lane.sent++];
  const auto [begin, end] = fragment(index, dimension_);
  const std::span<const float> values(theta + begin, end - begin);
  std::span<const std::byte> payload = std::as_bytes(values);
  const bool keeps = codec_ != Codec::none && !kept_[index];
  const float alpha = first_[index] ? 0 : alpha_;
  if (first_[index]) standings_->fragments[index].offers.add(values);
  lane.head = {index, alpha, old_reply_, kept_[index] ? codec_ : Codec::none, keeps};
  if (keeps) std::copy(values.begin(), values.end(), told_.data() + begin);
  if (kept_[index]) {
    lane.encoded.resize(encoded_size(codec_, values.size()));
    tell(codec_, values, std::span(told_).subspan(begin, values.size()), lane.encoded.data());
    payload = lane.encoded;
  }
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span(&lane.head, 1)), payload};
  conversation_.say(server_of(lane), {.kind = kExchange, .correlation = index}, parts);
  if (keeps) exact_.add({.out = kFrameHeader + sizeof lane.head + payload.size()});
}

bool ServerLinks::receive(Lane& lane) {
  const std::uint32_t index = lane.asked[lane.received];
  const auto [begin, end] = fragment(index, dimension_);
  const std::span<float> values(other_.data() + begin, end - begin);
  const std::size_t bytes = encoded_size(kept_[index] ? codec_ : Codec::none, values.size());
  const std::size_t server = server_of(lane);
  const auto header = conversation_.hear(server, [&](const FrameHeader& h) {
    // (Nor before all of it: what is sent must not be in use when this exchange is over.)
    const std::size_t gone = lane.sent - (conversation_.saying(server) ? 1 : 0);
    if (h.kind != kReply || h.correlation != index || h.length != bytes || lane.received >= gone) {
      throw Error("a sync server has answered something else than was asked");
    }
    if (!kept_[index]) return std::as_writable_bytes(values);
    lane.reply.resize(bytes);
    return std::span(lane.reply);
  });
  if (!header) return false;
  if (codec_ != Codec::none) decode(index, lane, values);
  // (Compressed, what was kept of it is not either: a new connection begins with exact values.)
  if (update_kernels().first_not_finite(values.data(), values.size()) != values.size()) {
    not_finite_.fetch_add(1, kRelaxed);
    throw Error("a sync server has answered what is not finite");
  }
  ++lane.received;
  return true;
}

void ServerLinks::decode(std::uint32_t index, const Lane& lane, std::span<float> values) {
  const std::size_t begin = fragment(index, dimension_).begin;
  const std::span<float> heard = std::span(heard_).subspan(begin, values.size());
  if (kept_[index]) {
    decode_and_add(codec_, lane.reply.data(), heard);
    std::copy(heard.begin(), heard.end(), values.begin());
  } else {
    std::copy(values.begin(), values.end(), heard.begin());
    kept_[index] = true;
    exact_.add({.in = kFrameHeader + values.size_bytes()});
  }
}

bool ServerLinks::step(Lane& lane, const float* theta) {
  const std::size_t most = std::min(lane.asked.size(), kUnderWay + 2 * lane.received);
  bool something = false;
  while (conversation_.free(server_of(lane)) && lane.sent < most) {
    send(lane, theta);
    something = true;
  }
  while (!finished(lane) && receive(lane)) something = true;
  return something;
}

bool ServerLinks::exchange(const float* theta, float alpha, bool old_reply, Covered& done,
                           Covered& first, const Deadline& deadline) {
  alpha_ = alpha;
  old_reply_ = old_reply;
  const double start = now();
  const auto give_up = [&](bool in_vain) {  // what has not come
    for (Lane& lane : lanes_) {
      if (finished(lane)) continue;
      all_ = false;
      if (in_vain && keep(lane)) continue;
      if (in_vain) late(lane, now() - start);
      drop(lane);
    }
  };
  // Now: what has been sent must not be left on its way.
  unfinished_.reserve(lanes_.size());
  came_.reserve(kept_.size());
  for (;;) {
    unfinished_.clear();
    bool something = false;
    for (Lane& lane : lanes_) {
      if (finished(lane)) continue;
      bool alive = true;
      try {
        something |= step(lane, theta);
      } catch (const std::exception&) {  // this server's; others go on
        alive = false;
      }
      if (!alive) {
        all_ = false;
        drop(lane);
      } else if (finished(lane)) {
        heard(lane);
      } else {
        unfinished_.push_back(server_of(lane));
      }
    }
    if (unfinished_.empty()) break;
    try {
      something ? deadline.check() : conversation_.wait(unfinished_, deadline);
    } catch (const ConnectionError& error) {
      give_up(error.reason == ConnectionError::Reason::late);
      break;
    } catch (...) {  // go_on's own, or no memory for the reason
      give_up(false);
      throw;
    }
  }
  conversation_.count();
  add_up(theta, done, first);
  return all_;
}

void ServerLinks::add_up(const float* theta, Covered& done, Covered& first) {
  for (const Lane& lane : lanes_) {
    const auto begin = lane.asked.begin();
    came_.insert(came_.end(), begin, begin + static_cast<std::ptrdiff_t>(lane.received));
  }
  std::sort(came_.begin(), came_.end());
  for (const std::uint32_t f : wanted_) standings_->fragments[f].missed.fetch_add(1, kRelaxed);
  for (const std::uint32_t f : came_) {
    standings_->fragments[f].missed.store(0, kRelaxed);
    const Range range = fragment(f, dimension_);
    // Another thread makes it, or has. Where that has changed theta, what encoding so large a
    // change loses would go into w: the next exchange sends it as it is.
    if (before_[f] && !first_[f]) {
      kept_[f] = false;
      const auto& contact = standings_->fragments[f].contact;
      if (contact.load(std::memory_order_acquire) == Contact::made) done.add(range);
      continue;
    }
    const std::span<float> values(other_.data() + range.begin, range.end - range.begin);
    const bool given = first_[f] && standings_->fragments[f].offers.has(values);
    // What the server has is theta as it was when it was sent: what was trained since then stays.
    if (given) std::copy(theta + range.begin, theta + range.end, values.begin());
    if (given || !first_[f]) {
      done.add(range);
      continue;
    }
    first.add(range);
    kept_[f] = false;  // likewise
  }
}

}  // namespace leashed
