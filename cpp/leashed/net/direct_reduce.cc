#include "leashed/net/direct_reduce.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "leashed/base/crc32c.h"

namespace leashed {
namespace {

using Reason = ConnectionError::Reason;

// Parts begin on lines of their own, as the vector does.
constexpr std::size_t kLine = kCacheLine / sizeof(float);
constexpr int kNumberBits = 20;  // of a correlation: the fragment's number, below its epoch
constexpr int kTurnFrames = 16;  // of a lane, until it is another's turn

std::uint64_t epoch_of(const FrameHeader& header) { return header.correlation >> kNumberBits; }

std::size_t room_of(std::size_t dimension, std::size_t members) {
  const std::size_t lines = (dimension + kLine - 1) / kLine;
  return (lines + members - 1) / members * kLine;
}

std::string named(std::size_t member) { return "member " + std::to_string(member); }

}  // namespace

DirectReduce::DirectReduce(std::size_t self, std::size_t all, Kinds kinds)
    : self_(self), kinds_(kinds), lanes_(all), state_(all) {
  if (self >= all) {
    throw Error("self is " + std::to_string(self) + " of " + std::to_string(all) + " members");
  }
  hearing_.reserve(all);
  waiting_.reserve(all);
  saying_.reserve(all);
}

// Floats of a slot: every member has as many lines, but for the last ones.
std::size_t DirectReduce::room() const { return room_of(dimension_, others_.size() + 1); }

bool DirectReduce::exchange(std::size_t dimension, std::size_t members, std::size_t one,
                            std::size_t other) {
  return room_of(dimension, members) * std::min(one, other) < dimension;
}

DirectReduce::Part DirectReduce::part(std::size_t place) const {
  const auto edge = [&](std::size_t p) { return std::min(dimension_, room() * p); };
  return {edge(place), edge(place + 1) - edge(place)};
}

// Nothing of the caller's is needed any more.
void DirectReduce::leave() {
  for (const std::size_t member : others_) {
    if (lanes_.has(member)) lanes_.keep(member);
  }
  lanes_.count();
}

// What fails there is that member's fault: it is not heard again over that connection.
template <class Do>
void DirectReduce::with(std::size_t member, const Do& act) {
  const auto failed = [&](Reason reason, const Error& error) {
    lanes_.drop(member);
    state_[member].into.reset();
    leave();
    return NoSum(reason, named(member) + ": " + error.what(), {member});
  };
  try {
    act();
  } catch (const ConnectionError& error) {
    throw failed(error.reason, error);
  } catch (const Error& error) {
    throw failed(Reason::refused, error);
  }
}

// Whether there is a connection, one that has come meanwhile included.
bool DirectReduce::there(std::size_t member) {
  if (lanes_.renew(member)) {
    state_[member].seen = {};
    state_[member].into.reset();
    state_[member].waiting.reset();
  }
  return lanes_.has(member);
}

void DirectReduce::drop(std::size_t member) {
  there(member);  // of those that have come, too
  lanes_.drop(member);
  state_[member].seen = {};
  state_[member].into.reset();
  state_[member].waiting.reset();
}

bool DirectReduce::called() {
  waiting_.clear();
  for (std::size_t member = 0; member < state_.size(); ++member) {
    if (!there(member)) continue;
    Connection& connection = *lanes_.connection(member);
    const auto events = state_[member].waiting ? std::nullopt : connection.events(true, false);
    if (!events) return true;
    waiting_.push_back({connection.socket(), *events, 0});
  }
  return poll(waiting_.data(), waiting_.size(), 0) != 0;
}

void DirectReduce::begin(Round round, std::span<const float> vector) {
  if (round.epoch <= epoch_ || round.epoch > kLastEpoch) {
    throw Error("epoch is " + std::to_string(round.epoch) + " behind " + std::to_string(epoch_));
  }
  if (round.giving == 0 || round.giving > round.members.size()) {
    throw Error("giving is " + std::to_string(round.giving) + " of " +
                std::to_string(round.members.size()) + " members; at least one gives a vector");
  }
  if (round.dimension / kFloats >= std::size_t{1} << kNumberBits) {
    throw Error("dimension: a sum has no room for " + std::to_string(round.dimension) + " values");
  }
  const auto me = std::ranges::find(round.members, self_);
  if (me == round.members.end()) throw Error("members: " + named(self_) + " is none of them");
  const auto place = static_cast<std::size_t>(me - round.members.begin());
  const bool gives = place < round.giving;
  if (const std::size_t given = gives ? round.dimension : 0; vector.size() != given) {
    throw Error("vector has " + std::to_string(vector.size()) + " values in place of " +
                std::to_string(given));
  }
  for (std::size_t i = 0; i < round.members.size(); ++i) {
    const std::size_t member = round.members[i];
    if (member >= state_.size() || std::ranges::count(round.members.first(i), member) != 0) {
      throw Error("members: " + named(member) + " is none, or there twice");
    }
  }

  leave();
  epoch_ = round.epoch;
  dimension_ = round.dimension;
  vector_ = vector;
  add_ = std::move(round.add);
  added_ = 0;
  others_.clear();
  const std::size_t count = round.members.size();
  for (std::size_t i = 1; i < count; ++i) others_.push_back(round.members[(place + i) % count]);
  own_ = part(place);
  if (!memory_ || memory_.use_count() > 1 || memory_->size() < room() * count) {
    memory_ = std::make_shared<Memory>(room() * count);
  }
  vectors_.clear();
  for (std::size_t i = 0; i < count; ++i) {
    Lane& lane = state_[round.members[i]];
    lane.gives = i < round.giving;
    lane.part = part(i);
    lane.slot = memory_->data() + room() * i;
    lane.gone = lane.vector = lane.summed = 0;
    if (lane.gives) vectors_.push_back(i == place ? vector.data() + own_.begin : lane.slot);
  }
  for (const std::size_t member : others_) {
    const Lane& lane = state_[member];
    if (!there(member) && (to_send(lane) > 0 || !has_all(lane))) {
      throw NoSum(Reason::closed, named(member) + ": there is no connection", {member});
    }
  }
  for (const std::size_t member : others_) {
    Lane& lane = state_[member];
    if (!lane.waiting || epoch_of(*lane.waiting) > epoch_) continue;
    const FrameHeader header = *std::exchange(lane.waiting, std::nullopt);
    with(member, [&] { came(member, header); });
  }
}

std::size_t DirectReduce::to_send(const Lane& lane) const {
  return (vector_.empty() ? 0 : lane.part.fragments()) + own_.fragments();
}

bool DirectReduce::has_vector(const Lane& lane) const {
  return lane.vector == (lane.gives ? own_.fragments() : 0);
}

bool DirectReduce::has_all(const Lane& lane) const {
  return has_vector(lane) && lane.summed == lane.part.fragments();
}

// Whether what comes next has its place: of the sum it has, once the vector that lies there is
// added. (What that waits for comes from others, who wait for nothing to send it.)
bool DirectReduce::hears(const Lane& lane) const {
  return !lane.waiting && !has_all(lane) &&
         (!has_vector(lane) || lane.summed >= lane.vector || lane.summed < added_);
}

// Whether it has something for this one, or this one for it. (What has not gone of an older epoch
// is not waited for: nobody may be there to read it.)
bool DirectReduce::busy(std::size_t member) const {
  const Lane& lane = state_[member];
  return !has_all(lane) || lane.gone < to_send(lane) ||
         (to_send(lane) > 0 && lanes_.saying(member));
}

// A fragment: true when it has gone, or was said.
bool DirectReduce::send(std::size_t member) {
  if (!lanes_.free(member)) return false;
  Lane& lane = state_[member];
  if (lane.gone == to_send(lane)) return false;
  const std::size_t given = vector_.empty() ? 0 : lane.part.fragments();
  const bool gives = lane.gone < given;
  const std::size_t number = gives ? lane.gone : lane.gone - given;
  if (!gives && number == added_) return false;
  const Part at = (gives ? lane.part : own_).fragment(number);
  const auto payload = std::as_bytes(std::span(gives ? vector_ : sum()).subspan(at.begin, at.size));
  lanes_.say(
      member,
      {.kind = gives ? kinds_.given : kinds_.summed, .correlation = epoch_ << kNumberBits | number},
      {&payload, 1});
  ++lane.gone;
  lanes_.free(member);
  return true;
}

// Where a frame of this epoch belongs, if it is what is to come next.
float* DirectReduce::place_of(const Lane& lane, const FrameHeader& header) const {
  const bool given = !has_vector(lane);
  const std::size_t next = given ? lane.vector : lane.summed;
  const Part& part = given ? own_ : lane.part;
  if (header.kind != (given ? kinds_.given : kinds_.summed) || next == part.fragments() ||
      header.correlation != (epoch_ << kNumberBits | next) ||
      header.length != part.fragment(next).size * sizeof(float)) {
    throw Error("a frame has come that is none of this sum; its members disagree");
  }
  return lane.slot + next * kFloats;
}

// Frames that were put aside are moved where they belong.
void DirectReduce::came(std::size_t member, const FrameHeader& header) {
  Lane& lane = state_[member];
  const bool aside = !lane.into;
  lane.into.reset();
  if (epoch_of(header) < epoch_) return;
  if (epoch_of(header) > epoch_) {
    lane.waiting = header;
    return;
  }
  if (aside) std::memcpy(place_of(lane, header), lane.aside.data(), header.length);
  ++(header.kind == kinds_.given ? lane.vector : lane.summed);
}

// A frame: true when it has come.
bool DirectReduce::hear(std::size_t member) {
  Lane& lane = state_[member];
  if (!hears(lane)) return false;
  const auto header = lanes_.hear(member, [&](const FrameHeader& coming) {
    if (epoch_of(coming) != epoch_) {
      lane.aside.resize(coming.length);
      return std::span(lane.aside);
    }
    float* const place = place_of(lane, coming);
    lane.into = memory_;
    return std::as_writable_bytes(std::span(place, coming.length / sizeof(float)));
  });
  if (header) came(member, *header);
  return header.has_value();
}

// What has come of all.
void DirectReduce::add() {
  std::size_t there = own_.fragments();
  for (const std::size_t member : others_) {
    if (state_[member].gives) there = std::min(there, state_[member].vector);
  }
  if (there == added_) return;
  const std::size_t begin = added_ * kFloats, end = std::min(own_.size, there * kFloats);
  add_(memory_->data() + own_.begin, vectors_, begin, end);
  added_ = there;
}

bool DirectReduce::step() {
  add();
  bool done = true;
  for (const std::size_t member : others_) {
    if (!busy(member)) continue;
    with(member, [&] {
      for (int frames = kTurnFrames; frames > 0; --frames) {
        const bool sent = send(member);
        const bool heard = hear(member);
        if (heard) add();
        if (!sent && !heard) break;
      }
    });
    done = done && !busy(member);
  }
  done = done && added_ == own_.fragments();
  if (done) lanes_.count();
  return done;
}

void DirectReduce::wait(const Deadline& deadline) {
  hearing_.clear();
  saying_.clear();
  for (const std::size_t member : others_) {
    const Lane& lane = state_[member];
    // There is something to send now that was not when it was its turn.
    const std::size_t ready = to_send(lane) - own_.fragments() + added_;
    if (lane.gone < ready && !lanes_.saying(member)) return;
    if (hears(lane)) {
      hearing_.push_back(member);
    } else if (busy(member) && lanes_.saying(member)) {
      saying_.push_back(member);
    }
  }
  try {
    lanes_.wait(hearing_, saying_, deadline);
  } catch (const ConnectionError& error) {
    leave();
    if (error.reason != Reason::late) throw NoSum(error.reason, error.what(), {});
    std::vector<std::size_t> who;
    std::string names;
    for (const std::size_t member : others_) {
      if (!busy(member)) continue;
      names += (who.empty() ? "" : ", ") + named(member);
      who.push_back(member);
    }
    throw NoSum(error.reason, std::string(error.what()) + ": " + names, std::move(who));
  }
}

void DirectReduce::count(WireCount& traffic) {
  for (std::size_t member = 0; member < state_.size(); ++member) {
    if (lanes_.has(member)) traffic.add(*lanes_.connection(member), state_[member].seen);
  }
}

std::uint32_t DirectReduce::checksum() const { return crc32c(sum().data(), sum().size_bytes()); }

}  // namespace leashed
