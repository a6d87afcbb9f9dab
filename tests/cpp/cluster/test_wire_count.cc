// Bytes of both sides of an exchange, as counted here and by the kernel, and what an exchange
// costs.
#include <doctest/doctest.h>
#include <fcntl.h>

#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "leashed/cluster/profile.h"
#include "leashed/cluster/server_links.h"
#include "leashed/cluster/sync_server.h"
#include "leashed/net/wire_count.h"
#include "net/sockets.h"

using namespace leashed;

namespace {

constexpr std::size_t kFloats = 5000;
constexpr int kExchanges = 50;

// What both sides have counted after some exchanges, and a connection that was replaced.
struct Both {
  explicit Both(std::pair<int, int> (*pair)()) {
    for (int connection = 0; connection < 2; ++connection) {
      const auto [here, there] = pair();
      links.adopt(0, here, false);
      server.adopt(there, false);
      for (int k = 0; k < kExchanges; ++k) {
        Covered done, first;
        REQUIRE(links.begin(0));
        REQUIRE(links.exchange(theta.data(), 0.5f, false, done, first, Deadline::in(60)));
        links.end();
      }
    }
  }
  SyncServer server{{{0, kFloats}}};
  ServerLinks links{kFloats, {0}, 1, 1};
  std::vector<float> theta = std::vector<float>(kFloats, 1.0f);
};

}  // namespace

TEST_CASE("over TCP the kernel has counted what both sides have, closed connections included") {
  Both both(loopback);
  if (!both.links.traffic().kernel()) {
    MESSAGE("NOT TESTED: this system has no such counts");
    return;
  }
  const Traffic own = both.links.traffic().own(), kernel = *both.links.traffic().kernel();
  const std::uint64_t one = kFrameHeader + kFloats * sizeof(float);
  CHECK(own.in == 2 * kExchanges * one);
  CHECK(own.out == 2 * kExchanges * (one + sizeof(ExchangeHead)));
  // (A FIN counts as a byte. What is answered acknowledges what was asked.)
  CHECK(kernel.in >= own.in);
  CHECK(kernel.in <= own.in + 2);
  CHECK(kernel.out >= own.out);
  CHECK(kernel.out <= own.out + 2);
  // (It counts once its answer has gone, and then asks the kernel.)
  const auto counted = [&] {
    const SyncServer::Counters now = both.server.counters();
    return now.traffic.out >= own.in && now.kernel && now.kernel->in >= now.traffic.in;
  };
  for (int i = 0; i < 60'000 && !counted(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const SyncServer::Counters counters = both.server.counters();
  REQUIRE(counters.kernel);
  CHECK(counters.kernel->in >= counters.traffic.in);
  CHECK(counters.kernel->in <= counters.traffic.in + 2);
  // Of each connection the last answer may not be acknowledged yet.
  CHECK(counters.kernel->out + 2 * one >= counters.traffic.out);
  CHECK(counters.kernel->out <= counters.traffic.out + 2);
}

TEST_CASE("the kernel's count is not made from that of the frames") {
  const auto [one, two] = loopback();
  Connection here(one, kServerLimits, false), there(two, kServerLimits, false);
  if (!here.kernel()) {
    MESSAGE("NOT TESTED: this system has no such counts");
    return;
  }
  WireCount count;
  WireCount::Seen seen;
  const std::string behind(1234, 'x');  // past the connection's back
  REQUIRE(write(two, behind.data(), behind.size()) == 1234);
  for (int i = 0; i < 60'000 && here.kernel()->in < 1234; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  count.add(here, seen);
  count.add(here, seen);  // nothing twice
  CHECK(count.own().in == 0);
  CHECK(count.kernel()->in == 1234);
}

TEST_CASE("one connection that the kernel does not count leaves none of its counts") {
  Both both(pair_of_sockets);
  CHECK(both.links.traffic().own().in > 0);
  CHECK_FALSE(both.links.traffic().kernel());
  CHECK_FALSE(both.server.counters().kernel);
}

TEST_CASE("an exchange of one float or a whole fragment is profiled, and takes both ends over") {
  for (const Transport wish : {Transport::tcp, Transport::shm}) {
    for (const std::size_t floats : {std::size_t{1}, kFragment}) {
      const auto [here, there] = loopback();
      CHECK(std::isfinite(profile_exchange(here, there, wish, floats)));
      CHECK(fcntl(here, F_GETFD) == -1);
      CHECK(fcntl(there, F_GETFD) == -1);
    }
  }
}
