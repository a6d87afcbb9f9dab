// What a sync server answers, without a socket or a thread.
#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "leashed/cluster/sync_service.h"
#include "leashed/net/codec.h"
#include "leashed/net/feedback.h"

using namespace leashed;

namespace {

using Bytes = std::vector<std::byte>;
using Vector = std::vector<float>;

struct Sent final : Outbox {
  void send(const FrameHeader& header, Connection::Parts parts) override {
    REQUIRE_FALSE(sent);  // one frame for each that came
    sent = header;
    payload.clear();
    for (const auto& part : parts) payload.insert(payload.end(), part.begin(), part.end());
  }
  std::optional<FrameHeader> sent;
  Bytes payload;
};

// Hands in whole frames, as a loop does.
struct Driver {
  Bytes say(Peer peer, std::uint16_t kind, const Bytes& payload, std::uint64_t correlation = 0) {
    const FrameHeader header{.kind = kind, .length = payload.size(), .correlation = correlation};
    const std::span<std::byte> place = service.place(peer, header);
    REQUIRE(place.size() == payload.size());
    std::memcpy(place.data(), payload.data(), payload.size());
    Sent out;
    service.frame(peer, header, out);
    REQUIRE(out.sent);
    CHECK(out.sent->kind == (kind == kProbe ? kProbe : kReply));
    CHECK(out.sent->correlation == correlation);
    return out.payload;
  }
  Bytes exchange(Peer peer, const ExchangeHead& head, const Bytes& values) {
    Bytes payload(sizeof head + values.size());
    std::memcpy(payload.data(), &head, sizeof head);
    std::memcpy(payload.data() + sizeof head, values.data(), values.size());
    return say(peer, kExchange, payload, head.fragment + 100);
  }
  Vector exchange(Peer peer, const ExchangeHead& head, const Vector& values) {
    Bytes bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    const Bytes reply = exchange(peer, head, bytes);
    Vector answered(reply.size() / sizeof(float));
    std::memcpy(answered.data(), reply.data(), reply.size());
    return answered;
  }
  SyncService service{{{0, 2}, {7, 3}}};
};

}  // namespace

TEST_CASE("what is held becomes the first replica, and then moves towards whose comes") {
  Driver driver;
  driver.service.come(1);
  driver.service.come(2);
  CHECK(driver.exchange(1, {0, 0.5f, 0}, Vector{4, 8}) == Vector{4, 8});
  CHECK(driver.exchange(2, {0, 0.25f, 0}, Vector{0, 0}) == Vector{3, 6});
  CHECK(driver.exchange(1, {0, 1.0f, 1}, Vector{5, 5}) == Vector{3, 6});  // as it was
  CHECK(driver.exchange(2, {0, 0.0f, 0}, Vector{9, 9}) == Vector{5, 5});
  CHECK(driver.exchange(2, {7, 0.5f, 0}, Vector{1, 2, 3}) == Vector{1, 2, 3});
  const SyncService::Counters counters = driver.service.counters();
  CHECK(counters.exchanges == 5);
  CHECK(counters.changes == 4);
  const SyncService::Snapshot snapshot = driver.service.snapshot();
  CHECK(snapshot.values == Vector{5, 5, 1, 2, 3});
  CHECK(snapshot.changes == 4);
}

TEST_CASE("whoever asks whether it is there has what he said back") {
  Driver driver;
  driver.service.come(5);
  CHECK(driver.say(5, kProbe, {std::byte{42}}) == Bytes{std::byte{42}});
  CHECK(driver.service.counters().exchanges == 0);
}

TEST_CASE("what does not belong there changes nothing, and is the others' concern neither") {
  Driver driver;
  driver.service.come(1);
  driver.service.come(2);
  driver.exchange(1, {0, 1.0f, 0}, Vector{1, 2});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_AS(driver.exchange(2, {1, 0.5f, 0}, Vector{1, 2}), Error);     // not held here
  CHECK_THROWS_AS(driver.exchange(2, {0, 0.5f, 0}, Vector{1, 2, 3}), Error);  // another length
  CHECK_THROWS_AS(driver.exchange(2, {0, 1.5f, 0}, Vector{1, 2}), Error);
  CHECK_THROWS_AS(driver.exchange(2, {0, 0.5f, 0}, Vector{1, nan}), Error);
  CHECK_THROWS_AS(driver.say(2, kReply, Bytes(24)), Error);
  driver.service.gone(2);
  CHECK(driver.service.counters().exchanges == 1);
  CHECK(driver.service.counters().not_finite == 1);
  CHECK(driver.exchange(1, {0, 0.0f, 0}, Vector{9, 9}) == Vector{1, 2});
}

TEST_CASE("what both sides know of each other is a connection's, and goes with it") {
  Driver driver;
  driver.service.come(1);
  driver.service.come(2);
  Vector told{1, 2}, heard = driver.exchange(1, {0, 0.5f, 0, Codec::none, 1}, told);
  const auto differs = [&](Peer peer) {
    Bytes encoded(encoded_size(Codec::bfloat16, 2));
    Vector known = told;
    const Vector theta{3, 4};
    tell(Codec::bfloat16, theta, known, encoded.data());
    return driver.exchange(peer, {0, 0.5f, 0, Codec::bfloat16}, encoded);
  };
  CHECK_THROWS_AS(differs(2), Error);
  const Bytes reply = differs(1);
  decode_and_add(Codec::bfloat16, reply.data(), heard);
  CHECK(heard == Vector{2, 3});
  driver.service.gone(1);
  driver.service.come(3);
  CHECK_THROWS_AS(differs(3), Error);
}
