// Out of memory, wherever memory is allocated.
#include <doctest/doctest.h>
#include <fcntl.h>

#include <atomic>
#include <new>
#include <vector>

#include "cluster/wires.h"
#include "leashed/cluster/server_links.h"
#include "leashed/cluster/sync_server.h"
#include "leashed/net/shared_rings.h"
#include "replaced_new.h"

namespace {

// Allocations until one fails, of any thread; far away where none is to.
constexpr long kNever = 1L << 60;
std::atomic<long> allocations_left{kNever};

void allocating() {
  if (allocations_left.fetch_sub(1, std::memory_order_relaxed) == 0) throw std::bad_alloc();
}

}  // namespace

using namespace leashed;

TEST_CASE(
    "a connection that there is no memory for stays the caller's, or is closed; others go on") {
  const std::size_t before = open_descriptors();
  {
    SyncServer server({{0, 5}});
    ServerLinks good(5, {0}, 1, 1);
    const std::vector<float> theta(5, 1.0f);
    const auto ask = [&](ServerLinks& links) {
      Covered done, first;
      const bool all = links.begin(0) &&
                       links.exchange(theta.data(), 0.5f, false, done, first, Deadline::in(kLong));
      links.end();
      return all;
    };
    {
      const auto [one, two] = pair_of_sockets();
      server.adopt(one, false);
      good.adopt(0, two, false);
    }
    CHECK(ask(good));
    int failed = 0;
    for (long left = 0; left < 80; ++left) {
      CAPTURE(left);
      // Every other time the server is asked first whether it answers.
      const double patience = left % 2 == 0 ? 0.0 : 0.05;
      ServerLinks links(5, {0}, 1, 1);
      const auto [one, two] = pair_of_sockets();
      bool taken = false, linked = false, answered = false;
      allocations_left.store(left / 2, std::memory_order_relaxed);
      try {
        server.adopt(one, false);
        taken = true;
      } catch (const std::bad_alloc&) {
      }
      try {
        answered = links.adopt(0, two, false, Transport::tcp, patience);
        linked = true;
      } catch (const std::bad_alloc&) {
      }
      if (taken && answered) {
        try {
          ask(links);
        } catch (const std::bad_alloc&) {
        }
      }
      allocations_left.store(kNever, std::memory_order_relaxed);
      failed += !taken + !linked;
      if (!taken) {
        CHECK(fcntl(one, F_GETFD) >= 0);
        close(one);
      }
      if (!linked) {
        CHECK(fcntl(two, F_GETFD) >= 0);
        close(two);
      }
      CHECK(ask(good));
    }
    CHECK(failed > 0);
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("an exchange that ends for want of memory gives up what it has not heard of") {
  const std::vector<float> theta(5, 1.0f);
  int failed = 0;
  for (long left = 0; left < 8; ++left) {
    CAPTURE(left);
    const auto [silent, socket] = pair_of_sockets();
    ServerLinks links(5, {0}, 1, 1);
    links.adopt(0, socket, false);
    Covered done, first;
    const Deadline soon = Deadline::in(0.05);
    allocations_left.store(left, std::memory_order_relaxed);
    try {
      links.begin(0);
      links.exchange(theta.data(), 0.5f, false, done, first, soon);
    } catch (const std::bad_alloc&) {
      ++failed;
    }
    allocations_left.store(kNever, std::memory_order_relaxed);
    CHECK((links.traffic().own().out == 0 || links.missing(0)));
    close(silent);
  }
  CHECK(failed > 0);
}

TEST_CASE("a server that serves needs no memory to go on, however many have something to say") {
  SyncServer server({{0, 5}});
  std::vector<int> trainers;
  for (int i = 0; i < 8; ++i) {
    const auto [one, other] = pair_of_sockets();
    server.adopt(one, false);
    trainers.push_back(other);
    CHECK(comes_true([&] { return server.counters().connections == trainers.size(); }));
  }
  const auto frame = encode(FrameHeader{.kind = kExchange, .length = sizeof(ExchangeHead)});
  std::uint64_t said = 0;
  for (std::size_t at = 0; at + 1 < frame.size(); ++at) {
    allocations_left.store(0, std::memory_order_relaxed);
    for (const int trainer : trainers) said += write(trainer, &frame[at], 1) == 1;
    const bool heard = comes_true([&] { return server.counters().traffic.in == said; });
    allocations_left.store(kNever, std::memory_order_relaxed);
    CHECK(heard);
  }
  CHECK(server.counters().connections == trainers.size());
  for (const int trainer : trainers) close(trainer);
}

TEST_CASE("shared rings that there is no memory for leave no descriptor") {
  const std::size_t before = open_descriptors();
  const Secret secret = draw_secret();
  const auto rings = SharedRings::create(secret);
  int failed = 0;
  for (long left = 0; left < 4; ++left) {
    for (const bool open : {false, true}) {
      allocations_left.store(left, std::memory_order_relaxed);
      try {
        open ? SharedRings::open(getpid(), rings->file(), secret) : SharedRings::create(secret);
      } catch (const std::bad_alloc&) {
        ++failed;
      }
      allocations_left.store(kNever, std::memory_order_relaxed);
      CHECK(open_descriptors() == before + 1);
    }
  }
  CHECK(failed >= 4);  // the rings themselves, and what counts who has them
}
