#include "leashed/net/ring.h"

#include <cstring>

#include "leashed/net/feedback.h"

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
                     const Plan& plan, std::span<float> data, const RingCodec& codec)
    : place_(place),
      kind_(kind),
      round_(round),
      plan_(plan),
      data_(data),
      codec_(codec),
      scratch_(plan.added == 0 || (place.previous.shared() && !encodes())
                   ? nullptr
                   : std::make_unique_for_overwrite<float[]>(kRingFragment / sizeof(float))),
      into_([this](const FrameHeader& header) { return memory_for(header); }),
      by_piece_([this](std::span<const std::byte> piece) { use(piece); }) {
  if (plan.to_send > 0 && place.next.sending()) {
    throw Error("a frame is still being sent; a round cannot begin");
  }
  if (encodes() && codec.error.size() != data.size()) {
    throw Error("a sum that is encoded needs as many errors as values");
  }
}

// Each part is received, and but for the last sent on, members − 1 times in each of two rounds.
RingRound RingRound::sum(const RingPlace& place, std::uint16_t kind, std::uint32_t round,
                         std::span<float> data, const RingCodec& codec) {
  const std::size_t others = place.members - 1;
  const RingStream sent(data, place.members, place.rank);
  const RingStream received(data, place.members, (place.rank + others) % place.members);
  return {place,
          kind,
          round,
          Plan{.sent = sent,
               .received = received,
               .own = sent.fragments(1),
               .added = received.fragments(others),
               .to_send = sent.fragments(2 * others),
               .to_receive = received.fragments(2 * others),
               .partial = sent.fragments(others)},
          data,
          codec};
}

RingRound RingRound::broadcast(const RingPlace& place, std::size_t root, std::uint16_t kind,
                               std::uint32_t round, std::span<float> data) {
  const RingStream stream(data, 1, 0);
  const std::size_t all = stream.fragments(1);
  const bool begins = place.rank == root, ends = (place.rank + 1) % place.members == root;
  return {place,
          kind,
          round,
          Plan{.sent = stream,
               .received = stream,
               .own = begins ? all : 0,
               .added = 0,
               .to_send = ends ? 0 : all,
               .to_receive = begins ? 0 : all},
          data,
          {}};
}

std::span<std::byte> RingRound::memory_for(const FrameHeader& header) {
  const std::span<float> fragment = plan_.received.fragment();
  if (header.kind != kind_ || header.correlation != correlation(come_) ||
      header.length != bytes(fragment)) {
    throw Error("a frame of another round has come; the ring's members disagree");
  }
  if (place_.previous.shared() && !encodes()) return {};
  const auto memory = adds() ? std::span(scratch_.get(), fragment.size()) : fragment;
  return std::as_writable_bytes(memory).first(header.length);
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
  const std::span<float> fragment = plan_.sent.fragment();
  const std::span<const std::byte> payload = std::as_bytes(fragment).first(bytes(fragment));
  if (!place_.next.sending()) {
    if (encodes() && gone_ < plan_.own + plan_.added) {
      const auto at = static_cast<std::size_t>(fragment.data() - data_.data());
      encode_with_error(codec_.codec, fragment, codec_.error.subspan(at, fragment.size()),
                        std::as_writable_bytes(fragment).data());
    }
    place_.next.begin({.kind = kind_, .correlation = correlation(gone_)}, {&payload, 1});
  }
  if (!place_.next.flush(whole() ? payload.size() : part_)) return false;
  if (encodes() && gone_ >= plan_.partial) decode_in_place(codec_.codec, fragment);
  plan_.sent.advance();
  ++gone_;
  return true;
}

bool RingRound::receive() {
  if (come_ == plan_.to_receive || !place_.previous.take(into_, by_piece_)) return false;
  const std::span<float> fragment = plan_.received.fragment();
  if (adds() && encodes()) {
    decode_and_add(codec_.codec, std::as_bytes(std::span(scratch_.get(), fragment.size())).data(),
                   fragment);
  } else if (adds() && scratch_) {
    add(fragment.data(), std::as_bytes(std::span(scratch_.get(), fragment.size())));
  } else if (encodes() && plan_.own + come_ >= plan_.to_send) {
    decode_in_place(codec_.codec, fragment);  // it goes no further
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
                std::span<float> data, const Deadline& deadline, const RingCodec& codec) {
  RingRound ring = RingRound::sum(place, kind, round, data, codec);
  while (!ring.step()) ring.wait(deadline);
}

void broadcast(const RingPlace& place, std::size_t root, std::uint16_t kind, std::uint32_t round,
               std::span<float> data, const Deadline& deadline) {
  RingRound ring = RingRound::broadcast(place, root, kind, round, data);
  while (!ring.step()) ring.wait(deadline);
}

}  // namespace leashed
