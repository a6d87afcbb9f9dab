// What the synchronisers ask for, event by event.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "leashed/policy/synchroniser.h"

using namespace leashed;

namespace {

using Kind = Action::Kind;

std::vector<Action> actions_of(Synchroniser& machine, Event event) {
  Out out;
  on(machine, event, {0}, out);
  return {out.actions().begin(), out.actions().end()};
}

std::vector<Kind> kinds_of(const std::vector<Action>& actions) {
  std::vector<Kind> kinds;
  for (const Action& action : actions) kinds.push_back(action.kind);
  return kinds;
}

Event idle() { return {Event::Kind::idle}; }
Event exchanged() { return {Event::Kind::exchanged}; }
Event summed(std::uint32_t members) { return {Event::Kind::summed, members}; }

}  // namespace

TEST_CASE("EASGD exchanges, then mixes with the same alpha; symmetric with what there was before") {
  for (const double symmetric : {0.0, 1.0}) {
    Synchroniser machine =
        make_synchroniser({"easgd", {{"alpha", 0.25}, {"symmetric", symmetric}}});
    CHECK(uses_servers(machine));
    CHECK(shared_states(machine) == 0);
    for (int round = 0; round < 3; ++round) {  // and so on, for ever
      const auto begun = actions_of(machine, idle());
      CHECK(kinds_of(begun) == std::vector{Kind::exchange});
      CHECK(begun[0].alpha == 0.25f);
      CHECK(begun[0].old_reply == (symmetric != 0));
      const auto over = actions_of(machine, exchanged());
      CHECK(kinds_of(over) == std::vector{Kind::mix});
      CHECK(over[0].alpha == 0.25f);
    }
  }
}

TEST_CASE("MA takes the mean over as many as there were, and mixes") {
  Synchroniser machine = make_synchroniser({"ma", {{"alpha", 0.5}}});
  CHECK_FALSE(uses_servers(machine));
  CHECK(shared_states(machine) == 0);
  for (const std::uint32_t members : {1u, 3u, 64u}) {
    CHECK(kinds_of(actions_of(machine, idle())) == std::vector{Kind::all_reduce});
    const auto over = actions_of(machine, summed(members));
    CHECK(kinds_of(over) == std::vector{Kind::average, Kind::mix});
    CHECK(over[0].members == members);
    CHECK(over[1].alpha == 0.5f);
  }
}

TEST_CASE("BMUF moves its global vector in between, with its settings") {
  Synchroniser machine = make_synchroniser(
      {"bmuf", {{"alpha", 0.5}, {"eta", 0.75}, {"momentum", 0.9}, {"nesterov", 1}}});
  CHECK_FALSE(uses_servers(machine));
  CHECK(shared_states(machine) == 2);
  CHECK(kinds_of(actions_of(machine, idle())) == std::vector{Kind::all_reduce});
  const auto over = actions_of(machine, summed(4));
  CHECK(kinds_of(over) == std::vector{Kind::average, Kind::advance, Kind::mix});
  CHECK(over[0].members == 4);
  CHECK(over[1].eta == 0.75f);
  CHECK(over[1].momentum == 0.9f);
  CHECK(over[1].nesterov);
  CHECK(over[2].alpha == 0.5f);
}

TEST_CASE("by differences MA and BMUF have theta kept from the sum to the mix") {
  for (const char* name : {"ma", "bmuf"}) {
    for (const double difference : {0.0, 1.0}) {
      Synchroniser machine = make_synchroniser({name,
                                                {{"alpha", 0.5},
                                                 {"eta", 1},
                                                 {"momentum", 0},
                                                 {"nesterov", 0},
                                                 {"difference", difference}}});
      CHECK(actions_of(machine, idle())[0].difference == (difference != 0));
      CHECK(actions_of(machine, summed(2)).back().difference == (difference != 0));
    }
  }
}

TEST_CASE("one from outside is asked what to do with what has come, over servers or members") {
  Synchroniser servers = make_synchroniser({"custom_servers", {{"alpha", 0.5}}});
  CHECK(uses_servers(servers));
  const auto begun = actions_of(servers, idle());
  CHECK(kinds_of(begun) == std::vector{Kind::exchange});
  CHECK(begun[0].alpha == 0.5f);
  CHECK(kinds_of(actions_of(servers, exchanged())) == std::vector{Kind::custom});

  Synchroniser mean = make_synchroniser({"custom_mean"});
  CHECK_FALSE(uses_servers(mean));
  CHECK(kinds_of(actions_of(mean, idle())) == std::vector{Kind::all_reduce});
  const auto over = actions_of(mean, summed(2));
  CHECK(kinds_of(over) == std::vector{Kind::average, Kind::custom});
  CHECK(over[0].members == 2);
}

TEST_CASE("a name or a setting that is not there is an error that says so") {
  CHECK_THROWS_WITH_AS(make_synchroniser({"magic"}),
                       "unknown synchroniser 'magic'; choose one of: bmuf, custom_mean, "
                       "custom_servers, easgd, ma",
                       Error);
  CHECK_THROWS_WITH_AS(make_synchroniser({"ma"}), "ma needs a value for 'alpha'", Error);
}
