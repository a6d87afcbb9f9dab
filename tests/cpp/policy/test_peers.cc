// Who meets whom.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cluster.h"

using namespace leashed;
using namespace leashed::modes;

namespace {

using Meetings = std::vector<std::vector<Node>>;

// All meetings of a run, and whom the pushes before them came from.
struct Met {
  Meetings meetings;
  std::vector<Node> pushed;
  int pushes = 0;
};

Met met(const char* name, std::map<std::string, double> settings, const Schedule& schedule) {
  settings.insert({{"workers", schedule.workers}, {"batch", 1}, {"examples", 2000}});
  Cluster cluster({name, settings}, schedule, 1);
  Met result;
  cluster.watch = [&](const Event& event, const Out& out) {
    result.pushes += event.kind == Event::Kind::push;
    for (const Action& a : out.actions()) {
      if (a.kind != Action::Kind::meet) continue;
      const auto nodes = out.nodes(a);
      result.meetings.emplace_back(nodes.begin(), nodes.end());
      result.pushed.push_back(event.node);
    }
  };
  cluster.run();
  return result;
}

}  // namespace

TEST_CASE("SwarmSGD's partner is any other, all about as often, and a seed decides") {
  const Schedule schedule{.workers = 5};
  const Met result = met("swarm", {{"h", 1}, {"seed", 7}}, schedule);
  CHECK(result.meetings.size() == 2000);
  std::map<Node, int> partners;
  for (std::size_t i = 0; i < result.meetings.size(); ++i) {
    REQUIRE(result.meetings[i].size() == 2);
    REQUIRE(result.meetings[i][0] == result.pushed[i]);
    ++partners[result.meetings[i][1]];
  }
  CHECK(partners.size() == 5);
  for (const auto& [node, times] : partners) CHECK(times > 200);
  CHECK(met("swarm", {{"h", 1}, {"seed", 7}}, schedule).meetings == result.meetings);
  CHECK(met("swarm", {{"h", 1}, {"seed", 8}}, schedule).meetings != result.meetings);
}

TEST_CASE("GoSGD meets with its probability") {
  CHECK(met("go_sgd", {{"p", 0}}, {.workers = 4}).meetings.empty());
  const auto some = met("go_sgd", {{"p", 0.25}}, {.workers = 4}).meetings.size();
  CHECK(some > 400);
  CHECK(some < 600);
  CHECK(met("go_sgd", {{"p", 1}}, {.workers = 4}).meetings.size() == 2000);
}

TEST_CASE("AD-PSGD meets neighbours on a ring, both") {
  const Met result = met("ad_psgd", {}, {.workers = 6});
  std::map<Node, int> ways;
  for (const auto& meeting : result.meetings) ++ways[(meeting[1] + 6 - meeting[0]) % 6];
  CHECK(ways.size() == 2);
  CHECK(ways[1] > 800);
  CHECK(ways[5] > 800);
}

TEST_CASE("D-PSGD meets in pairs when all have come, each neighbour in turn") {
  const Met result = met("d_psgd", {}, {.workers = 4});
  REQUIRE(result.meetings.size() == 1000);  // two for each of 500 rounds
  for (std::size_t i = 0; i < result.meetings.size(); i += 4) {
    CHECK(result.meetings[i] == std::vector<Node>{0, 1});
    CHECK(result.meetings[i + 1] == std::vector<Node>{2, 3});
    CHECK(result.meetings[i + 2] == std::vector<Node>{1, 2});
    CHECK(result.meetings[i + 3] == std::vector<Node>{3, 0});
  }
}

TEST_CASE("an odd one out of D-PSGD's pairs goes on alone") {
  const Met result = met("d_psgd", {}, {.workers = 3});
  CHECK(result.meetings.size() >= 2000 / 3);
  std::set<Node> seen;
  for (const auto& meeting : result.meetings) seen.insert(meeting.begin(), meeting.end());
  CHECK(seen.size() == 3);
}

TEST_CASE(
    "Prague's groups are at most as large as asked for, random, and leave out who is behind") {
  const Met even = met("prague", {{"group", 3}, {"lag", 4}}, {.workers = 7, .even = 10});
  std::set<std::set<Node>> different;
  std::set<std::size_t> sizes;
  for (const auto& meeting : even.meetings) {
    different.insert({meeting.begin(), meeting.end()});
    sizes.insert(meeting.size());
  }
  CHECK(different.size() > 20);
  CHECK(*sizes.rbegin() == 3);
  CHECK(*sizes.begin() >= 2);

  // Node 0 is 50 times slower: the others do not wait for it once it is behind.
  Cluster cluster(
      {"prague", {{"workers", 5}, {"batch", 1}, {"examples", 4000}, {"group", 2}, {"lag", 3}}},
      {.workers = 5}, 0);
  std::map<Node, int> pushes;
  cluster.takes = [](Node node, std::int64_t) -> std::int64_t { return node == 0 ? 500 : 10; };
  cluster.watch = [&](const Event& event, const Out&) {
    pushes[event.node] += event.kind == Event::Kind::push;
  };
  cluster.run();
  CHECK(pushes[1] > 5 * pushes[0]);
}

TEST_CASE("alone, peers meet nobody and go on") {
  for (const char* name : {"ad_psgd", "d_psgd", "prague"}) {
    CAPTURE(name);
    const Met result = met(name, {}, {.workers = 1});
    CHECK(result.meetings.empty());
    CHECK(result.pushes == 2000);
  }
}
