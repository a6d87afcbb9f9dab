// No mode allocates once it has seen what is usual.
#include <doctest/doctest.h>

#include <atomic>
#include <utility>
#include <vector>

#include "leashed/policy/server_policy.h"
#include "replaced_new.h"

namespace {

std::atomic<long> allocations{0};  // relaxed: the tests have one thread

void allocating() { allocations.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

using namespace leashed;
using namespace leashed::modes;

TEST_CASE("after a while nothing is allocated") {
  const std::vector<Choice> kinds = {
      {"sync"},
      {"bsp", {{"b2", 3}}},
      {"ssp", {{"s", 1}}},
      {"dssp", {{"lower", 1}, {"upper", 3}}},
      {"hop_bw", {{"b3", 1}}},
      {"easgd", {{"alpha", 0.5}}},
      {"gba", {{"iota", 0}}},
      {"automatic", {{"window_ns", 1000}}},
      {"shat"},
      {"swarm", {{"h", 1}}},
      {"d_psgd"},
      {"prague", {{"group", 2}}},
  };
  for (Choice choice : kinds) {
    CAPTURE(choice.name);
    choice.settings.insert({{"workers", 5}, {"batch", 2}, {"term_ns", 1e6}});
    ServerPolicy machine = make_server_policy(choice);
    Out out;
    std::vector<std::uint64_t> tickets(5);
    const auto tell = [&](Event event, std::int64_t now) {
      out.clear();
      machine.on(event, {now}, out);
      for (const Action& a : out.actions()) {
        if (a.kind == Action::Kind::grant) tickets[a.node] = a.lease.ticket;
      }
    };
    std::int64_t now = 0;
    const auto play = [&](int rounds) {
      for (int i = 0; i < rounds; ++i) {
        for (Node w = 0; w < 5; ++w) {
          if (w == 3 && i % 4 != 0) continue;  // a slow one
          now += 100;
          tell({Event::Kind::push, w, std::exchange(tickets[w], 0)}, now);
          tell({Event::Kind::pull, w}, now);
        }
        if (i % 10 == 0) tell({Event::Kind::leave, 4}, now);
        if (i % 10 == 5) {
          tell({Event::Kind::join, 4}, now);
          tell({Event::Kind::pull, 4}, now);
        }
        if (i % 50 == 0) tell({Event::Kind::wake}, now);
      }
    };
    play(3000);
    const long before = allocations.load(std::memory_order_relaxed);
    play(3000);
    CHECK(allocations.load(std::memory_order_relaxed) == before);
  }
}
