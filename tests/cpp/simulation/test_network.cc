#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/simulation/network.h"

using namespace leashed;

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

Network links(double bandwidth, double server, double latency, std::vector<double> slower = {}) {
  Choice choice{"links",
                {{"bandwidth", bandwidth}, {"server_bandwidth", server}, {"latency", latency}}};
  if (!slower.empty()) choice.tables["slower"] = std::move(slower);
  return Network(choice, 4, 2);
}

// Of one message that finds all links free.
std::int64_t alone(Network& network, Network::End from, Network::End to, std::uint64_t bytes,
                   std::int64_t ns) {
  return network.receive(from, to, bytes, network.send(from, bytes, ns));
}

}  // namespace

TEST_CASE("a message takes the latency and its bytes over the smaller bandwidth, both ways") {
  Network fast = links(100, 1000, 0.5), slow = links(1000, 100, 0.5);
  for (Network* network : {&fast, &slow}) {
    CHECK(alone(*network, 0, network->server(0), 200, kSecond) == kSecond + 5 * kSecond / 2);
    CHECK(alone(*network, network->server(0), 0, 200, kSecond) == kSecond + 5 * kSecond / 2);
  }
  Network even = links(100, 100, 0);
  CHECK(alone(even, 0, even.server(0), 200, 0) == 2 * kSecond);
}

TEST_CASE("a bandwidth without bounds leaves the latency") {
  const double no_bound = std::numeric_limits<double>::infinity();
  Network network = links(no_bound, no_bound, 0.25);
  CHECK(alone(network, 2, network.server(1), 1'000'000'000, 7) == 7 + kSecond / 4);
}

TEST_CASE("a link passes no more than its bandwidth, first come, first served") {
  Network network = links(100, 100, 0);
  const Network::End server = network.server(0);
  for (std::uint32_t w = 0; w < 4; ++w) {
    CHECK(network.send(w, 100, 10 * w) == 10 * w);
    CHECK(network.receive(w, server, 100, 10 * w) == (w + 1) * kSecond);
  }
  // Each server has a link of its own, and what it sends does not wait for what it receives.
  CHECK(alone(network, 0, network.server(1), 100, 2 * kSecond) == 3 * kSecond);
  CHECK(alone(network, server, 0, 100, 2 * kSecond) == 3 * kSecond);
  CHECK(network.send(server, 100, 2 * kSecond) == 3 * kSecond);
}

TEST_CASE("slow links side by side fill a fast one, and none holds it up") {
  Network network = links(100, 400, 0);
  for (std::uint32_t w = 0; w < 4; ++w) {
    CHECK(alone(network, w, network.server(0), 400, 0) == 4 * kSecond);
  }
  CHECK(alone(network, 0, network.server(0), 400, 4 * kSecond) == 8 * kSecond);
  Network mixed = links(100, 400, 0, {10});
  CHECK(alone(mixed, 0, mixed.server(0), 400, 0) == 40 * kSecond);
  CHECK(alone(mixed, 1, mixed.server(0), 400, 0) == 4 * kSecond);
}

TEST_CASE("a sender's messages leave one after the other") {
  Network network = links(100, 1000, 1);
  CHECK(alone(network, 0, network.server(0), 100, 0) == 2 * kSecond);
  CHECK(alone(network, 0, network.server(1), 100, 0) == 3 * kSecond);
}

TEST_CASE("two that meet send each other theirs, more sum over a ring when all are free") {
  Network network = links(100, 1, 0.5, {2});
  const std::vector<Network::End> two{1, 2}, all{0, 1, 2, 3};
  CHECK(network.average(two, 100, 0) == 3 * kSecond / 2);
  // Six steps of 25 bytes at the slowest's 50 B/s, after the pair has met.
  CHECK(network.average(all, 100, 0) == 3 * kSecond / 2 + 6 * kSecond);
  CHECK(alone(network, 3, network.server(0), 0, 0) == 8 * kSecond);
}

TEST_CASE("who dies gives up what it was sending") {
  Network network = links(100, 1000, 0);
  network.send(0, 1000, 0);
  network.cut(0, kSecond);
  CHECK(alone(network, 0, network.server(0), 100, 2 * kSecond) == 3 * kSecond);
}

TEST_CASE("what has no end takes the longest there is") {
  Network network = links(1e-300, 1e-300, 0);
  CHECK(alone(network, 0, network.server(0), 1, 5) == std::numeric_limits<std::int64_t>::max());
}

TEST_CASE("a network of another kind is refused") {
  CHECK_THROWS_WITH_AS(Network({"torus", {{"latency", 0}}}, 1, 1),
                       "a network must be 'links', not 'torus'", Error);
}
