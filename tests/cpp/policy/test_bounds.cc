// What each algorithm promises, looked at from outside.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cluster.h"

using namespace leashed;
using namespace leashed::modes;

namespace {

// How far ahead of the slowest who is granted a batch has ever been, in batches pushed.
std::uint64_t widest_gap(const Choice& mode, std::uint64_t seed) {
  Choice choice = mode;
  choice.settings.insert({{"workers", 6}, {"batch", 1}, {"examples", 500}});
  Cluster cluster(choice, {.workers = 6, .faults = seed % 2 == 1}, seed);
  std::map<Node, std::uint64_t> clocks;
  for (Node w = 0; w < 6; ++w) clocks[w] = 0;
  const auto least = [&] {
    std::uint64_t l = UINT64_MAX;
    for (const auto& [node, clock] : clocks) l = std::min(l, clock);
    return l;
  };
  std::uint64_t widest = 0;
  cluster.watch = [&](const Event& event, const Out& out) {
    if (event.kind == Event::Kind::push) ++clocks[event.node];
    if (event.kind == Event::Kind::leave) clocks.erase(event.node);
    if (event.kind == Event::Kind::join) clocks.insert({event.node, least()});
    for (const Action& a : out.actions()) {
      if (a.kind == Action::Kind::grant) widest = std::max(widest, clocks[a.node] - least());
    }
  };
  cluster.run();
  return widest;
}

Action only(const Out& out, Action::Kind kind) {
  REQUIRE(out.actions().size() == 1);
  REQUIRE(out.actions()[0].kind == kind);
  return out.actions()[0];
}

// A machine driven by hand.
struct Driven {
  ServerPolicy machine;
  Out out;
  std::map<Node, std::uint64_t> tickets;

  const Out& on(Event::Kind kind, std::int64_t now, Node node = 0, std::uint32_t argument = 0) {
    const std::uint64_t ticket = kind == Event::Kind::push ? tickets[node] : 0;
    out.clear();
    machine.on({kind, node, ticket, 0, argument}, {now}, out);
    for (const Action& a : out.actions()) {
      if (a.kind == Action::Kind::grant) tickets[a.node] = a.lease.ticket;
    }
    return out;
  }
  const Out& push(std::int64_t now, Node node) { return on(Event::Kind::push, now, node); }
  const Out& pull(std::int64_t now, Node node) { return on(Event::Kind::pull, now, node); }
};

Driven driven(const char* name, std::map<std::string, double> settings) {
  return {make_server_policy({name, std::move(settings)}), {}, {}};
}

}  // namespace

TEST_CASE("SSP and Hop-BS let nobody begin who is more than the bound ahead, and come up to it") {
  for (const std::uint64_t s : {0, 1, 3}) {
    std::uint64_t widest = 0;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      widest = std::max(widest, widest_gap({"ssp", {{"s", static_cast<double>(s)}}}, seed));
      widest = std::max(widest, widest_gap({"hop_bs", {{"b1", static_cast<double>(s)}}}, seed));
    }
    CHECK(widest == s);
  }
}

TEST_CASE("Hop-BS makes an update of m gradients, whose staleness stays near its bound") {
  for (const std::uint64_t b1 : {1, 2, 4}) {
    std::uint64_t stalest = 0;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      Cluster cluster(
          {"hop_bs",
           {{"workers", 6}, {"batch", 1}, {"examples", 600}, {"b1", static_cast<double>(b1)}}},
          {.workers = 6}, seed);
      std::map<Node, std::uint64_t> read;
      std::uint64_t version = 0;
      std::size_t held = 0;
      cluster.watch = [&](const Event& event, const Out& out) {
        for (const Action& a : out.actions()) {
          if (a.kind == Action::Kind::grant) read[a.node] = a.version;
          if (a.kind == Action::Kind::hold) {
            ++held;
            stalest = std::max(stalest, version - read[event.node]);
          }
          if (a.kind != Action::Kind::apply) continue;
          CHECK(a.divisor == 6);
          CHECK(std::exchange(held, 0) == 6);
          version = a.version;
        }
      };
      cluster.run();
      CHECK(version == 100);
    }
    // While one computes, each other pushes b1 + 1 batches before it waits, and some that count
    // from before.
    CHECK(stalest >= 1);
    CHECK(stalest <= 2 * b1 + 1);
  }
}

TEST_CASE("DSSP's bound lies between its two") {
  std::uint64_t widest = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    widest = std::max(widest, widest_gap({"dssp", {{"lower", 1}, {"upper", 4}}}, seed));
  }
  CHECK(widest > 1);
  CHECK(widest <= 4);
}

TEST_CASE("DSSP lets the fastest go on as far as brings it to a push of the slowest") {
  Driven m = driven("dssp", {{"workers", 2}, {"batch", 1}, {"lower", 0}, {"upper", 3}});
  m.pull(0, 0), m.pull(0, 1);
  m.push(10, 0);
  CHECK(m.pull(10, 0).actions().empty());  // no pace is known yet
  m.push(50, 1);
  m.pull(50, 1);
  m.push(60, 0);
  CHECK(m.pull(60, 0).actions().empty());
  m.push(100, 1);  // every 50
  m.pull(100, 1);
  m.push(120, 0);  // 60 after its last one
  // Its next pushes at 120, 180, 240, 300; node 1's at 150, 200, 250, 300: three more are exact.
  for (int i = 0; i < 3; ++i) {
    only(m.pull(120 + i, 0), Action::Kind::grant);
    m.push(120 + i, 0);
  }
  CHECK(m.pull(123, 0).actions().empty());  // upper
}

TEST_CASE("Hop-BW closes a round without the slowest, and drops what they push later") {
  Driven m = driven("hop_bw", {{"workers", 3}, {"batch", 2}, {"b3", 1}});
  for (Node w = 0; w < 3; ++w) CHECK(only(m.pull(0, w), Action::Kind::grant).version == 0);
  CHECK(only(m.push(5, 1), Action::Kind::hold).slot == 0);
  CHECK(m.pull(5, 1).actions().empty());
  m.push(6, 0);
  REQUIRE(m.out.actions().size() == 3);  // hold, apply, and node 1 goes on
  const Action& apply = m.out.actions()[1];
  CHECK(apply.kind == Action::Kind::apply);
  CHECK(apply.divisor == 2);
  CHECK(m.out.slots(apply)[0].index == 1);  // by batch number
  CHECK(m.out.slots(apply)[1].index == 0);
  CHECK(m.out.actions()[2].node == 1);
  CHECK(only(m.push(7, 2), Action::Kind::drop).why == Why::straggler);
  CHECK(only(m.pull(7, 2), Action::Kind::grant).version == 1);
  // A leave may complete a round.
  m.push(8, 1);
  CHECK(only(m.on(Event::Kind::leave, 9, 2), Action::Kind::apply).divisor == 1);
}

TEST_CASE("SHAT's count is that of Algorithm 1's lines 13 to 23, whoever joins and leaves") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Cluster cluster({"shat", {{"workers", 5}, {"batch", 1}, {"examples", 400}}},
                    {.workers = 5, .faults = true}, seed);
    std::map<Node, std::uint32_t> printed, sent;
    for (Node w = 0; w < 5; ++w) printed[w] = sent[w] = 0;
    cluster.watch = [&](const Event& event, const Out& out) {
      if (event.kind == Event::Kind::join) printed[event.node] = sent[event.node] = 0;
      if (event.kind == Event::Kind::leave) printed.erase(event.node);
      if (event.kind == Event::Kind::push) {
        for (auto& [node, c] : printed) c += node != event.node;
        sent[event.node] = std::exchange(printed[event.node], 0);
      }
      for (const Action& a : out.actions()) {
        if (a.kind != Action::Kind::grant) continue;
        CHECK(a.c == sent[a.node]);
        CHECK(a.n == printed.size());
        sent[a.node] = 0;
      }
    };
    cluster.run();
  }
}

TEST_CASE(
    "SHAT's weight as printed, its binary and its root form, at the ends and in an even cluster") {
  const Mixing natural{.kind = Mixing::Kind::logarithm};
  const Mixing binary{.kind = Mixing::Kind::logarithm, .base = 2};
  const Mixing root{.kind = Mixing::Kind::root};
  for (const Mixing& mixing : {natural, binary, root}) {
    CHECK(mixing.weight(1, 0) == 1);
    CHECK(mixing.weight(8, 0) == 0);
    CHECK(mixing.weight(8, UINT32_MAX) < 1);
    CHECK(mixing.weight(2, 1) == 0);
  }
  const auto even = [](const Mixing& mixing, std::uint32_t n) {
    return std::round(100 * mixing.weight(n, n - 1)) / 100;
  };
  CHECK(even(natural, 4) == doctest::Approx(0.04));
  CHECK(even(natural, 8) == doctest::Approx(0.45));
  CHECK(even(natural, 16) == doctest::Approx(0.62));
  CHECK(even(binary, 4) == doctest::Approx(0.33));
  CHECK(even(binary, 8) == doctest::Approx(0.62));
  CHECK(even(binary, 16) == doctest::Approx(0.73));
  CHECK(root.weight(16, 16) == doctest::Approx(0.75));
  CHECK(Mixing{.alpha = 0.3}.weight(4, 9) == doctest::Approx(0.3));
}

TEST_CASE("who joins SHAT begins with no updates by others, and a push is answered at once") {
  Driven m = driven("shat", {{"workers", 2}, {"batch", 1}});
  const auto answer = [&](std::int64_t now, Node node) {
    m.push(now, node);
    REQUIRE(m.out.actions().size() == 3);
    REQUIRE(m.out.actions()[2].kind == Action::Kind::grant);
    return m.out.actions()[2];
  };
  CHECK(only(m.pull(0, 0), Action::Kind::grant).n == 2);
  m.pull(0, 1);
  for (int i = 1; i < 4; ++i) {
    CHECK(answer(i, 0).c == 0);
    CHECK(m.pull(i, 0).actions().empty());
  }
  m.on(Event::Kind::join, 4, 7);
  const Action joined = only(m.pull(4, 7), Action::Kind::grant);
  CHECK(joined.c == 0);
  CHECK(joined.n == 3);
  CHECK(answer(5, 1).c == 3);
  CHECK(answer(6, 7).c == 1);
}

TEST_CASE("who has a model of its own is answered after its last push too, once") {
  for (const char* const name : {"shat", "shat_root", "ensemble", "easgd", "local_sgd"}) {
    CAPTURE(name);
    std::map<std::string, double> settings = {{"workers", 2}, {"batch", 1}, {"examples", 2}};
    if (name == std::string("easgd")) settings["alpha"] = 0.5;
    if (name == std::string("local_sgd")) settings["h"] = 1;
    Driven m = driven(name, settings);
    m.pull(0, 0), m.pull(0, 1);
    std::map<Node, std::vector<Action>> told;
    const auto hear = [&](const Out& out) {
      for (const Action& a : out.actions()) {
        if (a.kind == Action::Kind::grant || a.kind == Action::Kind::end) {
          told[a.node].push_back(a);
        }
      }
    };
    hear(m.push(1, 0));
    hear(m.pull(1, 0));
    hear(m.push(2, 1));
    for (const Node node : {1, 0}) hear(m.pull(3, node));
    for (const Node node : {0, 1}) {
      REQUIRE(told[node].size() >= 2);
      CHECK(told[node][0].kind == Action::Kind::grant);
      CHECK(told[node][0].lease.count == 0);
      CHECK(told[node][0].version == (name == std::string("local_sgd") ? 1 : 2));
      for (std::size_t i = 1; i < told[node].size(); ++i) {
        CHECK(told[node][i].kind == Action::Kind::end);
      }
    }
    // Who comes now has pushed nothing.
    only(m.pull(4, 7), Action::Kind::end);
  }
}

TEST_CASE("no node's number is a measure of memory") {
  Driven m = driven("asp", {{"workers", 2}, {"batch", 1}});
  for (const Event::Kind kind : {Event::Kind::pull, Event::Kind::join, Event::Kind::push}) {
    CHECK_THROWS_WITH_AS(m.on(kind, 0, kMostNodes), "node must be below 16777216", Error);
  }
  CHECK(only(m.pull(0, 0), Action::Kind::grant).n == 2);
}

TEST_CASE("Sync's mean is over all that are there") {
  Driven m = driven("sync", {{"workers", 2}, {"batch", 1}});
  m.pull(0, 0), m.pull(0, 1);
  m.push(1, 0);
  CHECK(m.pull(1, 0).actions().empty());
  // Node 1 is gone: the round is over, and node 0 takes its batch, under a fresh ticket.
  m.on(Event::Kind::leave, 2, 1);
  REQUIRE(m.out.actions().size() == 2);
  CHECK(m.out.actions()[0].divisor == 1);
  const Action again = m.out.actions()[1];
  CHECK(again.node == 0);
  CHECK(again.lease.number == 1);
  CHECK(again.lease.ticket == 3);
  CHECK(again.version == 1);
  only(m.pull(3, 2), Action::Kind::grant);  // who pulls joins
  CHECK(only(m.push(4, 0), Action::Kind::hold).slot == 0);
  CHECK(m.push(5, 2).actions()[1].divisor == 2);
}

TEST_CASE("a pull while a lease is out is not heard; who leaves first gets the batch again") {
  for (const char* name : {"asp", "sync", "gba", "shat"}) {
    CAPTURE(name);
    Driven m = driven(name, {{"workers", 2}, {"batch", 1}});
    m.pull(0, 0);
    CHECK(m.pull(1, 0).actions().empty());
    CHECK(m.on(Event::Kind::leave, 2, 0).actions().empty());
    const Action again = only(m.pull(3, 0), Action::Kind::grant);
    CHECK(again.lease.number == 0);
    CHECK(again.lease.ticket == 2);
    CHECK(again.n == 2);
  }
}

TEST_CASE("EASGD exchanges models under the lease's ticket, and its workers mix with the reply") {
  Driven m = driven("easgd", {{"workers", 1}, {"batch", 8}, {"alpha", 0.25}, {"gap", 4}});
  const Action grant = only(m.pull(0, 0), Action::Kind::grant);
  const Out& answer = m.push(1, 0);
  REQUIRE(answer.actions().size() == 2);
  const Action exchange = answer.actions()[0], reply = answer.actions()[1];
  CHECK(exchange.kind == Action::Kind::exchange);
  CHECK(exchange.ticket == grant.lease.ticket);
  CHECK(exchange.alpha == 0.25f);
  CHECK(reply.kind == Action::Kind::grant);  // before anybody else can exchange
  CHECK(reply.version == exchange.version);
  CHECK(m.pull(1, 0).actions().empty());
  const WorkerRule& r = m.machine.rule();
  CHECK(r.local_steps == 4);
  CHECK(r.takes == WorkerRule::Takes::mix);
  CHECK(r.mixing.weight(1, 0) == 0.25);
}

TEST_CASE("who has come too late, and who ends, is told so") {
  Driven m = driven("asp", {{"workers", 1}, {"batch", 3}, {"examples", 4}, {"term_ns", 10}});
  const Out& first = m.pull(0, 0);
  REQUIRE(first.actions().size() == 2);
  CHECK(first.actions()[1].kind == Action::Kind::wake);
  CHECK(first.actions()[1].at.ns == 10);
  CHECK(m.on(Event::Kind::wake, 9).actions().empty());
  CHECK(m.on(Event::Kind::wake, 10).actions().empty());  // nobody waits for it
  const Action late = only(m.push(11, 0), Action::Kind::drop);
  CHECK(late.why == Why::late);
  CHECK(late.ticket == 1);
  const Action again = m.pull(11, 0).actions()[0];
  CHECK(again.lease.number == 0);
  CHECK(again.lease.ticket == 2);
  m.push(12, 0);
  CHECK(m.pull(12, 0).actions()[0].lease.count == 1);  // the last is short
  m.push(13, 0);
  only(m.pull(13, 0), Action::Kind::end);
  only(m.pull(14, 0), Action::Kind::end);
}
