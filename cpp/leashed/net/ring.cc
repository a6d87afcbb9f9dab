#include "leashed/net/ring.h"

#include <cstring>

namespace leashed {
namespace {

constexpr int kTurns = 16;  // until the clock is looked at, a fragment each way

// Floats that lie wherever they have come.
void add(float* sum, std::span<const std::byte> values) {
  const std::size_t count = values.size() / sizeof(float);
  for (std::size_t i = 0; i < count; ++i) {
    float value;
    std::memcpy(&value, values.data() + i * sizeof value, sizeof value);
    sum[i] += value;
  }
}

}  // namespace

RingRound::RingRound(const RingPlace& place, std::uint16_t kind, std::uint32_t round,
                     const Plan& plan)
    : place_(place),
      kind_(kind),
      round_(round),
      plan_(plan),
      scratch_(plan.added == 0 || place.previous.shared()
                   ? nullptr
                   : std::make_unique_for_overwrite<float[]>(kRingFragment / sizeof(float))),
      into_([this](const FrameHeader& header) { return memory_for(header); }),
      by_piece_([this](std::span<const std::byte> piece) { use(piece); }) {
  if (plan.to_send > 0 && place.next.sending()) {
    throw Error("a frame is still being sent; a round cannot begin");
  }
}

// Each part is received, and but for the last sent on, members − 1 times in each of two rounds.
RingRound RingRound::sum(const RingPlace& place, std::uint16_t kind, std::uint32_t round,
                         std::span<float> data) {
  const std::size_t others = place.members - 1;
  const RingStream sent(data, place.members, place.rank);
  const RingStream received(data, place.members, (place.rank + others) % place.members);
  return {place, kind, round,
          Plan{.sent = sent,
               .received = received,
               .own = sent.fragments(1),
               .added = received.fragments(others),
               .to_send = sent.fragments(2 * others),
               .to_receive = received.fragments(2 * others)}};
}

RingRound RingRound::broadcast(const RingPlace& place, std::size_t root, std::uint16_t kind,
                               std::uint32_t round, std::span<float> data) {
  const RingStream stream(data, 1, 0);
  const std::size_t all = stream.fragments(1);
  const bool begins = place.rank == root, ends = (place.rank + 1) % place.members == root;
  return {place, kind, round,
          Plan{.sent = stream,
               .received = stream,
               .own = begins ? all : 0,
               .added = 0,
               .to_send = ends ? 0 : all,
               .to_receive = begins ? 0 : all}};
}

std::span<std::byte> RingRound::memory_for(const FrameHeader& header) {
  const std::span<float> fragment = plan_.received.fragment();
  if (header.kind != kind_ || header.correlation != correlation(come_) ||
      header.length != fragment.size_bytes()) {
    throw Error("a frame of another round has come; the ring's members disagree");
  }
  if (place_.previous.shared()) return {};
  return std::as_writable_bytes(adds() ? std::span(scratch_.get(), fragment.size()) : fragment);
}

// What comes through shared memory is added, or copied, from where it lies, and sent on before the
// rest of its fragment is there.
void RingRound::use(std::span<const std::byte> piece) {
  float* const to = plan_.received.fragment().data() + part_ / sizeof(float);
  if (adds()) {
    add(to, piece);
  } else {
    std::memcpy(to, piece.data(), piece.size());
  }
  part_ += piece.size();
  send();
}

// A fragment: true when it has gone.
bool RingRound::send() {
  if (gone_ == plan_.to_send || !(whole() || ahead())) return false;
  const std::span<const std::byte> bytes = std::as_bytes(plan_.sent.fragment());
  if (!place_.next.sending()) {
    place_.next.begin({.kind = kind_, .correlation = correlation(gone_)}, {&bytes, 1});
  }
  if (!place_.next.flush(whole() ? bytes.size() : part_)) return false;
  plan_.sent.advance();
  ++gone_;
  return true;
}

bool RingRound::receive() {
  if (come_ == plan_.to_receive || !place_.previous.take(into_, by_piece_)) return false;
  if (adds() && scratch_) {
    const std::span<float> fragment = plan_.received.fragment();
    add(fragment.data(), std::as_bytes(std::span(scratch_.get(), fragment.size())));
  }
  plan_.received.advance();
  ++come_;
  part_ = 0;
  return true;
}

bool RingRound::step() {
  for (int turns = kTurns; turns > 0; --turns) {
    const bool sent = send();
    if (!receive() && !sent) break;
  }
  return gone_ == plan_.to_send && come_ == plan_.to_receive;
}

RingRound::Needs RingRound::needs() const {
  const bool something = whole() || (ahead() && part_ > place_.next.gone());
  return {come_ < plan_.to_receive, gone_ < plan_.to_send && something};
}

void RingRound::wait(const Deadline& deadline) const {
  const auto [to_read, to_write] = needs();
  if (&place_.next == &place_.previous || !to_write) {
    place_.previous.wait(to_read, to_write, deadline);
  } else if (!to_read) {
    place_.next.wait(false, true, deadline);
  } else {
    Connection::wait(place_.previous, place_.next, deadline);
  }
}

void all_reduce(const RingPlace& place, std::uint16_t kind, std::uint32_t round,
                std::span<float> data, const Deadline& deadline) {
  RingRound ring = RingRound::sum(place, kind, round, data);
  while (!ring.step()) ring.wait(deadline);
}

void broadcast(const RingPlace& place, std::size_t root, std::uint16_t kind, std::uint32_t round,
               std::span<float> data, const Deadline& deadline) {
  RingRound ring = RingRound::broadcast(place, root, kind, round, data);
  while (!ring.step()) ring.wait(deadline);
}

}  // namespace leashed
