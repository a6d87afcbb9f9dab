// Every mode under schedules drawn from seeds.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "cluster.h"

using namespace leashed;
using namespace leashed::modes;

namespace {

using Settings = std::map<std::string, double>;

const std::vector<Choice> kModes = {
    {"sync"},
    {"all_reduce"},
    {"bsp", {{"b2", 3}}},
    {"asp"},
    {"ssp", {{"s", 0}}},
    {"ssp", {{"s", 2}}},
    {"dssp", {{"lower", 1}, {"upper", 4}}},
    {"hop_bs", {{"b1", 2}}},
    {"hop_bs", {{"b1", 1}, {"m", 3}, {"divide_by_containing", 1}}},
    {"hop_bw", {{"b3", 0}}},
    {"hop_bw", {{"b3", 2}}},
    {"easgd", {{"alpha", 0.5}, {"gap", 4}}},
    {"local_sgd", {{"h", 4}}},
    {"gba", {{"m", 3}, {"iota", 0}}},
    {"gba", {{"m", 4}, {"iota", 2}, {"divide_by_m", 1}}},
    {"gba", {{"m", 4}, {"divide_by_containing", 1}}},
    {"switching", {{"gba_batch", 2}}},
    {"automatic", {{"gba_batch", 2}, {"window_ns", 1000}, {"windows", 1}}},
    {"shat"},
    {"shat_root"},
    {"ensemble"},
    {"swarm", {{"h", 3}}},
    {"go_sgd", {{"p", 0.5}}},
    {"ad_psgd"},
    {"d_psgd"},
    {"prague", {{"group", 3}, {"lag", 2}}},
};

Choice with(Choice choice, const Settings& settings) {
  for (const auto& [key, value] : settings) choice.settings[key] = value;
  return choice;
}

void check_ledger(const Cluster& cluster) {
  CHECK(cluster.waiting() == 0);  // nobody waits for ever
  CHECK(cluster.nothing_held());
  bool once = true;
  for (std::uint64_t i = 0; i < cluster.examples; ++i) {
    once = once && cluster.applied[i] + cluster.dropped[i] == 1;
  }
  CHECK(once);
}

std::vector<std::string> even_run(const Choice& choice) {
  Cluster cluster(with(choice, {{"workers", 4}, {"batch", 3}, {"examples", 190}}),
                  {.workers = 4, .even = 7}, 0);
  cluster.tell = true;
  cluster.run();
  check_ledger(cluster);
  return cluster.told;
}

}  // namespace

TEST_CASE("every example is applied once or counted as dropped, and nobody waits for ever") {
  for (const Choice& mode : kModes) {
    CAPTURE(mode.name);
    for (std::uint64_t seed = 0; seed < 120; ++seed) {
      CAPTURE(seed);
      Dice dice(1000 + seed);
      const auto workers = static_cast<std::uint32_t>(1 + dice.below(8));
      const bool silences = seed % 3 == 2;
      Cluster cluster(with(mode, {{"workers", workers},
                                  {"batch", static_cast<double>(1 + dice.below(5))},
                                  {"examples", static_cast<double>(1 + dice.below(400))},
                                  {"term_ns", silences ? 150 : 0}}),
                      {.workers = workers, .faults = seed % 3 > 0, .silences = silences}, seed);
      cluster.run();
      check_ledger(cluster);
    }
  }
}

TEST_CASE(
    "a stream ends where it is told to: what is out comes back, and what is held is applied") {
  for (const Choice& mode : kModes) {
    CAPTURE(mode.name);
    // Far more than is ever begun.
    Cluster cluster(with(mode, {{"workers", 5}, {"batch", 2}, {"examples", 100'000}}),
                    {.workers = 5}, 3);
    cluster.at(400, {Event::Kind::data_end});
    cluster.run();
    CHECK(cluster.waiting() == 0);
    CHECK(cluster.nothing_held());
    std::uint64_t begun = 0;
    while (begun < cluster.examples && cluster.applied[begun] + cluster.dropped[begun] == 1) {
      ++begun;
    }
    CHECK(begun > 0);
    CHECK(std::accumulate(cluster.applied.begin() + static_cast<std::ptrdiff_t>(begun),
                          cluster.applied.end(), 0) == 0);
  }
}

TEST_CASE("with equal workers GBA and BSP of as many, and Hop-BW without backup, act as Sync") {
  const auto sync = even_run({"sync"});
  CHECK(even_run({"gba", {{"iota", 0}}}) == sync);
  CHECK(even_run({"bsp"}) == sync);
  CHECK(even_run({"all_reduce"}) == sync);
  CHECK(even_run({"switching"}) == sync);
  CHECK(even_run({"hop_bw", {{"b3", 0}}}) == sync);
}

TEST_CASE("one worker makes every mode sequential: a grant, an update, a grant") {
  for (const char* name : {"sync", "bsp", "asp", "gba", "shat"}) {
    CAPTURE(name);
    Cluster cluster({name, {{"workers", 1}, {"batch", 4}, {"examples", 22}}}, {.workers = 1}, 0);
    std::uint64_t next = 0;
    cluster.watch = [&](const Event& event, const Out& out) {
      for (const Action& a : out.actions()) {
        if (a.kind == Action::Kind::grant && a.lease.count > 0) {
          CHECK(a.lease.number == next);
          CHECK(a.lease.first == 4 * next);
          CHECK(a.version == next);
          ++next;
        }
      }
      if (event.kind == Event::Kind::push) CHECK(out.actions()[1].kind == Action::Kind::apply);
    };
    cluster.run();
    CHECK(next == 6);
    CHECK(cluster.applied == std::vector<int>(22, 1));
  }
}

TEST_CASE("a copy of a machine answers as the machine does") {
  for (const Choice& mode : kModes) {
    CAPTURE(mode.name);
    Cluster cluster(with(mode, {{"workers", 5}, {"batch", 2}, {"examples", 300}, {"term_ns", 200}}),
                    {.workers = 5, .faults = true, .silences = true}, 5);
    ServerPolicy twin = cluster.machine;
    Dice dice(9);
    cluster.watch = [&](const Event& event, const Out& out) {
      Out again;
      twin.on(event, {cluster.now}, again);
      REQUIRE(again.actions().size() == out.actions().size());
      for (std::size_t i = 0; i < again.actions().size(); ++i) {
        REQUIRE(words(again.actions()[i], again) == words(out.actions()[i], out));
      }
      if (dice.one_in(7)) twin = ServerPolicy(cluster.machine);
    };
    cluster.run();
  }
}

namespace {

Archived archived(ServerPolicy& machine) {
  Archived state;
  Archive archive(state);
  machine.visit(archive);
  return state;
}

// Into one as it was made, which has heard of as many nodes.
ServerPolicy read_back(const Choice& choice, std::uint32_t nodes, const Archived& state) {
  ServerPolicy machine = make_server_policy(choice);
  Out out;
  for (Node node = 0; node < nodes; ++node) machine.on({Event::Kind::join, node}, {0}, out);
  Archive archive(state);
  machine.visit(archive);
  archive.finish();
  return machine;
}

}  // namespace

TEST_CASE("a machine that was written down and read back answers as the machine does") {
  for (const Choice& mode : kModes) {
    CAPTURE(mode.name);
    const Choice choice =
        with(mode, {{"workers", 5}, {"batch", 2}, {"examples", 300}, {"term_ns", 200}});
    Cluster cluster(choice, {.workers = 5, .faults = true, .silences = true}, 5);
    ServerPolicy twin = cluster.machine;
    Dice dice(9);
    std::uint32_t nodes = 5;
    cluster.watch = [&](const Event& event, const Out& out) {
      nodes = std::max(nodes, event.node + 1);
      Out again;
      twin.on(event, {cluster.now}, again);
      REQUIRE(again.actions().size() == out.actions().size());
      for (std::size_t i = 0; i < again.actions().size(); ++i) {
        REQUIRE(words(again.actions()[i], again) == words(out.actions()[i], out));
      }
      if (dice.one_in(7)) twin = read_back(choice, nodes, archived(cluster.machine));
    };
    cluster.run();
  }
}

TEST_CASE("a state of a machine that is cut short, or of other nodes, is refused") {
  for (const Choice& mode : kModes) {
    CAPTURE(mode.name);
    const Choice choice = with(mode, {{"workers", 3}, {"batch", 2}, {"examples", 100}});
    Cluster cluster(choice, {.workers = 3}, 2);
    Archived state;
    cluster.watch = [&](const Event&, const Out&) {
      if (state.words.empty() && cluster.machine.examples_leased() > 50) {
        state = archived(cluster.machine);
      }
    };
    cluster.run();
    REQUIRE(!state.words.empty());
    CHECK_NOTHROW(read_back(choice, 3, state));
    CHECK_THROWS_WITH_AS(read_back(choice, 4, state), doctest::Contains("damaged"), Error);
    for (std::size_t size = 0; size < state.words.size(); ++size) {
      Archived cut = state;
      cut.words.resize(size);
      CHECK_THROWS_WITH_AS(read_back(choice, 3, cut), doctest::Contains("damaged"), Error);
    }
    // Whatever is read, nothing outside of it is touched: for AddressSanitizer.
    for (std::size_t i = 0; i < state.words.size(); ++i) {
      for (const std::uint64_t word : {std::uint64_t{0}, std::uint64_t{77}, ~std::uint64_t{0}}) {
        Archived wrong = state;
        wrong.words[i] = word;
        try {
          ServerPolicy machine = read_back(choice, 3, wrong);
          Out out;
          for (Node node = 0; node < 3; ++node) {
            machine.on({Event::Kind::leave, node}, {1000}, out);
            machine.on({Event::Kind::pull, node}, {1000}, out);
          }
        } catch (const Error&) {
        }
      }
    }
  }
}

TEST_CASE("what a mode is asked for wrongly it says, with the remedy") {
  const Settings job = {{"workers", 2}, {"batch", 1}};
  const auto made = [&](const char* name, const Settings& more) {
    return make_server_policy(with({name, job}, more));
  };
  CHECK_THROWS_WITH_AS(made("gbaa", {}), doctest::Contains("unknown mode 'gbaa'"), Error);
  CHECK_THROWS_WITH_AS(made("ssp", {}), doctest::Contains("needs a value for 's'"), Error);
  CHECK_THROWS_WITH_AS(made("asp", {{"s", 1}}), doctest::Contains("no argument 's'"), Error);
  CHECK_THROWS_WITH_AS(made("gba", {{"m", 1.5}}), doctest::Contains("whole number"), Error);
  CHECK_THROWS_WITH_AS(made("gba", {{"m", 0}}), doctest::Contains("must be from 1"), Error);
  CHECK_THROWS_WITH_AS(made("gba", {{"iota", NAN}}), doctest::Contains("not nan"), Error);
  CHECK_THROWS_WITH_AS(made("dssp", {{"lower", 3}, {"upper", 2}}),
                       doctest::Contains("'upper' must be from 3"), Error);
  CHECK_THROWS_WITH_AS(made("shat", {{"base", 0.5}}), doctest::Contains("above 1"), Error);
  CHECK_THROWS_WITH_AS(make_server_policy({"asp", {{"workers", 0}, {"batch", 1}}}),
                       doctest::Contains("'workers' must be from 1"), Error);
}
