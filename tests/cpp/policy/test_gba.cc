// GBA's tokens and buffer, switching in mid-run, and switching by itself.
#include <doctest/doctest.h>

#include <map>
#include <vector>

#include "cluster.h"
#include "leashed/policy/automatic.h"
#include "leashed/policy/gba.h"

using namespace leashed;
using namespace leashed::modes;

namespace {

std::uint32_t argument(Gba::Mode mode) { return static_cast<std::uint32_t>(mode); }

}  // namespace

TEST_CASE("a token repeats m times, and what is more than iota steps behind is dropped") {
  ServerPolicy m =
      make_server_policy({"gba", {{"workers", 3}, {"batch", 1}, {"m", 2}, {"iota", 1}}});
  Out out;
  std::vector<std::uint64_t> tokens;
  const auto pull = [&](Node node) {
    out.clear();
    m.on({Event::Kind::pull, node}, {0}, out);
    tokens.push_back(out.actions()[0].lease.token);
    return out.actions()[0].lease.ticket;
  };
  const auto push = [&](Node node, std::uint64_t ticket) {
    out.clear();
    m.on({Event::Kind::push, node, ticket}, {0}, out);
    return out.actions();
  };
  const std::uint64_t slow = pull(2);  // batch 0, token 0
  for (int i = 0; i < 4; ++i) push(0, pull(0));
  CHECK(tokens == std::vector<std::uint64_t>{0, 0, 1, 1, 2});
  const std::uint64_t fast = pull(0);  // batch 5, token 2; two steps are over
  CHECK(push(2, slow).size() == 1);
  const auto actions = push(0, fast);
  REQUIRE(actions.size() == 3);  // hold, apply, drop
  CHECK(actions[1].kind == Action::Kind::apply);
  CHECK(actions[1].divisor == 1);
  CHECK(actions[1].version == 3);
  CHECK(out.slots(actions[1])[0].index == 1);
  CHECK(actions[2].why == Why::stale);
  CHECK(actions[2].ticket == slow);
}

TEST_CASE("a step of which nothing is kept makes no update, and counts") {
  ServerPolicy m =
      make_server_policy({"gba", {{"workers", 2}, {"batch", 1}, {"m", 1}, {"iota", 0}}});
  Out out;
  m.on({Event::Kind::pull, 0}, {0}, out);
  m.on({Event::Kind::pull, 1}, {0}, out);
  m.on({Event::Kind::push, 1, 2}, {1}, out);  // token 1, ahead of step 0: fresh
  CHECK(out.actions().back().kind == Action::Kind::apply);
  CHECK(out.actions().back().version == 1);
  out.clear();
  m.on({Event::Kind::push, 0, 1}, {2}, out);  // token 0 at step 1
  REQUIRE(out.actions().size() == 2);
  CHECK(out.actions()[1].kind == Action::Kind::drop);
  out.clear();
  m.on({Event::Kind::pull, 0}, {2}, out);
  const Lease lease = out.actions()[0].lease;
  CHECK(out.actions()[0].version == 1);
  CHECK(lease.token == 2);
  out.clear();
  m.on({Event::Kind::push, 0, lease.ticket}, {3}, out);
  CHECK(out.actions()[1].version == 2);
  CHECK(out.actions()[1].step == 2);  // tokens are compared with it
}

TEST_CASE("a batch that comes back is computed anew, and as fresh as the step it is then sent at") {
  for (const bool expires : {false, true}) {
    CAPTURE(expires);
    ServerPolicy m = make_server_policy(
        {"gba",
         {{"workers", 2}, {"batch", 1}, {"m", 1}, {"iota", 4}, {"term_ns", expires ? 50 : 0}}});
    Out out;
    const auto told = [&](const Event& event, std::int64_t now) {
      out.clear();
      m.on(event, {now}, out);
      return out.actions();
    };
    const Lease lost = told({Event::Kind::pull, 0}, 0)[0].lease;
    Lease lease = told({Event::Kind::pull, 1}, 0)[0].lease;
    for (std::int64_t now = 1; now <= 10; ++now) {
      told({Event::Kind::push, 1, lease.ticket}, now);
      lease = told({Event::Kind::pull, 1}, now)[0].lease;
    }
    CHECK(lost.token == 0);
    CHECK(lease.token == 11);
    told({Event::Kind::push, 1, lease.ticket}, 49);
    told(expires ? Event{Event::Kind::wake} : Event{Event::Kind::leave, 0}, 50);
    const Lease again = told({Event::Kind::pull, 1}, 50)[0].lease;
    CHECK(again.number == lost.number);
    CHECK(again.token == 11);  // as many steps as there have been
    const auto actions = told({Event::Kind::push, 1, again.ticket}, 51);
    REQUIRE(actions.size() == 2);
    CHECK(actions[1].kind == Action::Kind::apply);
  }
}

TEST_CASE("a thousand switches lose nothing, train nothing twice, and leave nothing under way") {
  std::uint64_t switches = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    CAPTURE(seed);
    Cluster cluster({"switching",
                     {{"workers", 5},
                      {"batch", 8},
                      {"gba_batch", 4},
                      {"m", 10},
                      {"iota", 1},
                      {"examples", 6000},
                      {"term_ns", seed % 2 == 1 ? 300 : 0}}},
                    {.workers = 5, .faults = seed % 4 > 1, .silences = seed % 2 == 1}, seed);
    Dice dice(seed);
    std::int64_t when = 0;
    for (int i = 0; i < 60; ++i) {
      when += static_cast<std::int64_t>(dice.below(400));
      cluster.at(when, {Event::Kind::command, 0, 0, 0, static_cast<std::uint32_t>(dice.below(2))});
    }
    Gba::Mode mode = Gba::Mode::sync;
    std::size_t held = 0;
    std::uint64_t version = 0;
    std::map<Node, std::uint64_t> read;
    cluster.watch = [&](const Event& event, const Out& out) {
      bool closed = false, ends = false;
      for (const Action& a : out.actions()) {
        if (a.kind == Action::Kind::hold) {
          ++held;
          if (mode == Gba::Mode::sync) CHECK(read[event.node] == version);  // nothing is stale
        }
        if (a.kind == Action::Kind::apply) version = a.version;
        if (a.kind == Action::Kind::grant) read[a.node] = a.version;
        closed = closed || a.kind == Action::Kind::apply ||
                 (a.kind == Action::Kind::drop && a.why == Why::stale);
        ends = ends || a.kind == Action::Kind::end;
      }
      if (closed) {
        if (mode == Gba::Mode::gba) CHECK((held == 10 || ends || cluster.waiting() == 0));
        held = 0;
      }
      const Gba::Mode is = cluster.machine.as<Gba>()->mode();
      if (is != mode) {
        CHECK(held == 0);
        ++switches;
      }
      mode = is;
    };
    cluster.run();
    CHECK(cluster.waiting() == 0);
    CHECK(cluster.nothing_held());
    for (std::uint64_t i = 0; i < cluster.examples; ++i) {
      REQUIRE(cluster.applied[i] + cluster.dropped[i] == 1);
    }
  }
  CHECK(switches >= 1000);
}

TEST_CASE("batches that have come back and wait at a switch are the first of GBA's, none stale") {
  for (const bool expires : {false, true}) {
    CAPTURE(expires);
    ServerPolicy m = make_server_policy(
        {"switching",
         {{"workers", 3}, {"batch", 1}, {"m", 2}, {"iota", 0}, {"term_ns", expires ? 10 : 0}}});
    Out out;
    const auto told = [&](const Event& event, std::int64_t now) {
      out.clear();
      m.on(event, {now}, out);
      return out.actions();
    };
    const auto granted = [&](Node node, std::int64_t now) {
      return told({Event::Kind::pull, node}, now)[0].lease;
    };
    for (Node node = 0; node < 3; ++node) CHECK(granted(node, node == 0 ? 5 : 0).token == 0);
    told({Event::Kind::command, 0, 0, 0, argument(Gba::Mode::gba)}, 6);
    told({Event::Kind::push, 0, 1}, 7);
    if (expires) {
      told({Event::Kind::wake}, 10);
    } else {
      told({Event::Kind::leave, 2}, 10);
      told({Event::Kind::leave, 1}, 10);
    }
    REQUIRE(m.as<Gba>()->mode() == Gba::Mode::gba);
    std::vector<std::uint64_t> numbers, tokens;
    for (Node node = 0; node < 5; ++node) {
      const Lease lease = granted(node, 11);
      numbers.push_back(lease.number);
      tokens.push_back(lease.token);
    }
    CHECK(numbers == std::vector<std::uint64_t>{1, 2, 3, 4, 5});
    CHECK(tokens == std::vector<std::uint64_t>{1, 1, 2, 2, 3});
  }
}

TEST_CASE("a command that a mode does not know changes nothing and says so") {
  Out out;
  ServerPolicy gba = make_server_policy({"gba", {{"workers", 2}, {"batch", 1}}});
  CHECK_THROWS_WITH_AS(gba.on({Event::Kind::command, 0, 0, 0, 2}, {0}, out),
                       "a command's argument must be 0, Sync, or 1, GBA, not 2", Error);
  ServerPolicy asp = make_server_policy({"asp", {{"workers", 2}, {"batch", 1}}});
  CHECK_THROWS_WITH_AS(asp.on({Event::Kind::command}, {0}, out), doctest::Contains("no commands"),
                       Error);
  CHECK(out.actions().empty());
}

TEST_CASE("a command back before the switch undoes it") {
  ServerPolicy m = make_server_policy({"gba", {{"workers", 2}, {"batch", 1}}});
  Out out;
  const auto tell = [&](Event event) {
    out.clear();
    m.on(event, {0}, out);
    return out.actions().size();
  };
  tell({Event::Kind::pull, 0});
  tell({Event::Kind::pull, 1});
  CHECK(tell({Event::Kind::command, 0, 0, 0, argument(Gba::Mode::sync)}) == 0);
  tell({Event::Kind::push, 0, 1});
  CHECK(tell({Event::Kind::pull, 0}) == 0);  // what is under way makes whole steps
  CHECK(tell({Event::Kind::command, 0, 0, 0, argument(Gba::Mode::gba)}) == 1);
  CHECK(out.actions()[0].kind == Action::Kind::grant);
}

namespace {

struct Wave {
  double low, high;   // how long a batch takes the fourth of four workers; the others 100
  std::int64_t half;  // of the period
  double windows = 3;
};

// How often automatic switching switched, and which mode it is in at the end.
std::pair<int, Gba::Mode> switched(const Wave& wave, double examples = 40'000) {
  Cluster cluster({"automatic",
                   {{"workers", 4},
                    {"batch", 1},
                    {"examples", examples},
                    {"window_ns", 10'000},
                    {"windows", wave.windows},
                    {"gain", 1.2},
                    {"h", 0.1}}},
                  {.workers = 4}, 0);
  cluster.takes = [&](Node node, std::int64_t now) -> std::int64_t {
    if (node < 3) return 100;
    return static_cast<std::int64_t>(100 * (now / wave.half % 2 == 0 ? wave.low : wave.high));
  };
  int count = 0;
  Gba::Mode mode = Gba::Mode::sync;
  Gba::Mode last = mode;
  cluster.watch = [&](const Event& event, const Out&) {
    if (event.kind == Event::Kind::data_end) return;
    mode = cluster.machine.as<Automatic>()->mode();
    count += mode != last;
    last = mode;
  };
  cluster.run();
  return {count, mode};
}

}  // namespace

TEST_CASE("automatic switching goes where the workers' times say, from either mode") {
  // GBA over Sync is (3x + 1) / 4 for a fourth worker x times slower: 1.32 at 1.43, 1.08 at 1.11.
  CHECK(switched({1, 1, 1'000'000}) == std::pair{0, Gba::Mode::sync});
  CHECK(switched({2, 2, 1'000'000}) == std::pair{1, Gba::Mode::gba});
  CHECK(switched({100, 100, 10'000'000}) == std::pair{1, Gba::Mode::gba});
  // One period: GBA in its first half, Sync in its second.
  CHECK(switched({2, 1, 500'000}, 36'000) == std::pair{2, Gba::Mode::sync});
}

TEST_CASE("a batch that was lost tells nothing of its node's pace") {
  Forecast forecast({.window_ns = 10, .windows = 1, .gain = 1.2, .h = 0.1, .capacity = 0});
  for (const Node node : {0u, 1u}) {
    forecast.granted(node, {node + 1, node, node, 1, 0}, {0});
    forecast.pushed(node, node + 1, {10});
  }
  forecast.granted(1, {3, 2, 2, 1, 0}, {20});
  const auto everybody = [](Node) { return true; };
  const auto nobody = [](Node) { return false; };
  CHECK(!forecast.look({20}, everybody, nobody));
  CHECK(forecast.look({1000}, everybody, nobody) == Gba::Mode::sync);  // both are as fast
}

TEST_CASE("a square wave near a threshold, or as fast as the windows, makes nothing flap") {
  CHECK(switched({1.15, 1.40, 20'000}).first == 0);  // between the thresholds
  CHECK(switched({1.0, 1.40, 100'000}).first == 0);  // past the lower one only
  CHECK(switched({1.15, 3.0, 100'000}).first == 1);  // past the upper one only
  CHECK(switched({1.0, 3.0, 10'000}).first == 0);    // never three windows in turn
}
