// One thread that converses with several others, over sockets that hold as little as they can.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "leashed/base/clock.h"
#include "leashed/net/conversation.h"
#include "sockets.h"

using namespace leashed;

namespace {

using Bytes = std::vector<std::byte>;
using Reason = ConnectionError::Reason;

constexpr double kLong = 120;  // seconds: under an emulator
constexpr std::array<std::uint64_t, 2> kLimits{0, std::uint64_t{1} << 22};

std::unique_ptr<Connection> made(int socket) {
  return std::make_unique<Connection>(socket, kLimits, false);
}

std::pair<int, int> least() {
  const auto sockets = pair_of_sockets();
  const int bytes = 1;
  for (const int socket : {sockets.first, sockets.second}) {
    REQUIRE(setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) == 0);
    REQUIRE(setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) == 0);
  }
  return sockets;
}

// Sends back so many frames, each before it takes the next.
std::jthread echo(int socket, int frames) {
  return std::jthread([socket, frames] {
    Connection connection(socket, kLimits, false);
    Bytes payload;
    const auto place = [&payload](const FrameHeader& header) {
      payload.resize(header.length);
      return std::span(payload);
    };
    try {
      for (int i = 0; i < frames; ++i) {
        const FrameHeader header = connection.receive(place, Deadline::in(kLong));
        const std::span<const std::byte> all(payload);
        connection.send({.kind = 1, .correlation = header.correlation}, {&all, 1},
                        Deadline::in(kLong));
      }
    } catch (const ConnectionError&) {  // the other side has had enough
    }
  });
}

Reason reason_of(const auto& f) {
  try {
    f();
  } catch (const ConnectionError& error) {
    return error.reason;
  }
  FAIL("nothing thrown");
  return Reason::closed;
}

constexpr std::array<std::size_t, 1> kFirst{0};

}  // namespace

TEST_CASE("who says much more than the system holds hears meanwhile, from several at once") {
  constexpr std::size_t kLanes = 3;
  constexpr int kFrames = 5;
  std::vector<std::jthread> others;
  Conversation conversation(kLanes);
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const auto [here, there] = least();
    others.push_back(echo(there, kFrames));
    conversation.adopt(lane, made(here));
    CHECK(conversation.renew(lane));
  }
  const Bytes bytes(1'000'000, std::byte{7});
  const std::span<const std::byte> all(bytes);
  int said[kLanes]{}, heard[kLanes]{};
  std::vector<Bytes> answers(kLanes, Bytes(bytes.size()));
  const Deadline deadline = Deadline::in(kLong);
  for (std::vector<std::size_t> open{0, 1, 2}; !open.empty();) {
    bool something = false;
    for (const std::size_t lane : open) {
      while (conversation.free(lane) && said[lane] < kFrames) {  // all of it ahead
        conversation.say(lane, {.kind = 1, .correlation = static_cast<std::uint64_t>(said[lane]++)},
                         {&all, 1});
      }
      while (const auto header = conversation.hear(
                 lane, [&](const FrameHeader&) { return std::span(answers[lane]); })) {
        CHECK(header->correlation == static_cast<std::uint64_t>(heard[lane]++));
        CHECK(answers[lane] == bytes);
        something = true;
        if (heard[lane] == kFrames) break;
      }
    }
    std::erase_if(open, [&](std::size_t lane) { return heard[lane] == kFrames; });
    if (!something) conversation.wait(open, deadline);
  }
  conversation.count();
  CHECK(conversation.traffic().own().out == kLanes * kFrames * (kFrameHeader + bytes.size()));
  CHECK(conversation.traffic().own().in == conversation.traffic().own().out);
}

TEST_CASE("what has come ends a wait at once, though what is being said cannot go") {
  const auto [here, there] = least();
  Conversation conversation(1);
  conversation.adopt(0, made(here));
  REQUIRE(conversation.renew(0));
  Connection other(there, kLimits, false);
  const Bytes bytes(1'000'000);
  const std::span<const std::byte> all(bytes);
  conversation.say(0, {.kind = 1}, {&all, 1});
  REQUIRE_FALSE(conversation.free(0));
  double shortest = kLong;  // of several, since the processor may be somebody else's
  for (int i = 0; i < 10; ++i) {
    other.send({.kind = 1}, {}, Deadline::in(kLong));
    const double begun = now();
    conversation.wait(kFirst, Deadline::in(kLong));
    shortest = std::min(shortest, now() - begun);
    CHECK(conversation.hear(0, [](const FrameHeader&) { return std::span<std::byte>(); }));
    CHECK_FALSE(conversation.free(0));
  }
  CHECK(shortest < 0.04);  // a wait for nothing ends after 0.05
}

TEST_CASE("a lane's end is that lane's; nobody waits for one that is not asked for") {
  Conversation conversation(2);
  std::jthread other;
  {
    const auto [here, there] = least();
    close(there);
    conversation.adopt(0, made(here));
  }
  const auto [here, there] = least();
  conversation.adopt(1, made(here));
  CHECK((conversation.renew(0) && conversation.renew(1)));
  const auto nowhere = [](const FrameHeader&) { return std::span<std::byte>(); };
  CHECK(reason_of([&] { conversation.hear(0, nowhere); }) == Reason::closed);
  conversation.wait(kFirst, Deadline::in(kLong));  // there is its end to hear
  // The other is silent: waiting for it takes as long as said, though the first would wake it.
  const double begun = now();
  constexpr std::array<std::size_t, 1> kSecond{1};
  const Deadline soon = Deadline::in(0.15);
  CHECK(reason_of([&] {
          for (;;) conversation.wait(kSecond, soon);
        }) == Reason::late);
  CHECK(now() - begun >= 0.15);
  std::atomic<bool> cancelled{true};
  Deadline off = Deadline::in(kLong);
  off.cancelled = &cancelled;
  CHECK(reason_of([&] { conversation.wait(kSecond, off); }) == Reason::cancelled);
  conversation.drop(0);
  CHECK_FALSE(conversation.there(0));
  CHECK_FALSE(conversation.has(0));
  CHECK(conversation.there(1));
  other = echo(there, 1);
  conversation.say(1, {.kind = 1}, {});
  CHECK(conversation.free(1));
  while (!conversation.hear(1, nowhere)) conversation.wait(kSecond, Deadline::in(kLong));
}

TEST_CASE("a connection that has come is the lane's once it is renewed, and what went is counted") {
  Conversation conversation(1);
  CHECK_FALSE(conversation.there(0));
  CHECK_FALSE(conversation.renew(0));
  std::vector<std::jthread> others;
  for (const std::uint64_t mark : {7, 8}) {
    const auto [here, there] = least();
    others.push_back(echo(there, 1));
    std::jthread([&] { conversation.adopt(0, made(here), mark); }).join();
    CHECK(conversation.there(0));
    CHECK(conversation.has(0) == (mark == 8));  // the one before
    CHECK(conversation.renew(0));
    CHECK_FALSE(conversation.renew(0));
    CHECK(conversation.mark(0) == mark);
    conversation.say(0, {.kind = 1}, {});
    CHECK(conversation.free(0));
    while (!conversation.hear(0, [](const FrameHeader&) { return std::span<std::byte>(); })) {
      conversation.wait(kFirst, Deadline::in(kLong));
    }
  }
  CHECK(conversation.traffic().own().out == kFrameHeader);  // of the closed one
  conversation.count();
  CHECK(conversation.traffic().own().out == 2 * kFrameHeader);
  CHECK(conversation.traffic().own().in == 2 * kFrameHeader);
  // One that comes while the lane's is dropped stays.
  const auto [here, there] = least();
  conversation.adopt(0, made(here));
  conversation.drop(0);
  CHECK(conversation.there(0));
  CHECK(conversation.renew(0));
  close(there);
}
