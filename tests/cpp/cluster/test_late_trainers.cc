// Trainers in one process, over socket pairs: what one is that comes late.
#include <doctest/doctest.h>

#include <atomic>
#include <exception>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/rings.h"
#include "leashed/cluster/ring_group.h"
#include "leashed/cluster/round.h"
#include "leashed/cluster/trainer_sync.h"
#include "replica.h"

namespace leashed {
namespace {

constexpr std::size_t kDimension = 100;
constexpr double kTimeout = 30;

SyncPlan plan(const Pace& pace) {
  return {
      make_synchroniser({"bmuf", {{"alpha", 0.5}, {"eta", 1}, {"momentum", 0}, {"nesterov", 0}}}),
      pace,
      kDimension,
      {},
      0,
      1,
      kTimeout};
}

struct Trainer {
  Trainer(const Pace& pace, float initial)
      : replica(std::vector<float>(kDimension, initial)), sync(make_trainer_sync(plan(pace), 1)) {}

  void begin() {
    sync->begin({replica.discipline(), 1, kDimension, stopped, [](std::exception_ptr) {}},
                [] { return true; });
  }
  Replica replica;
  std::atomic<bool> stopped{false};
  std::unique_ptr<TrainerSync> sync;
};

// A ring of two, of which the second is new.
void connect(Trainer& a, Trainer& b, std::uint64_t epoch) {
  auto both = rings(epoch, {false, true});
  a.sync->ring().form(std::move(both[0]));
  b.sync->ring().form(std::move(both[1]));
}

}  // namespace

TEST_CASE("who comes late has the others' theta before it trains") {
  Pace every{Pace::Kind::iterations, {0}, {1000}};
  for (const Pace& pace : {Pace{}, every}) {
    Trainer old(Pace{}, 1), late(pace, 5);
    old.sync->ring().form({1, 0, {true}, nullptr});
    old.begin();
    connect(old, late, 2);
    late.begin();
    // (A round in the background may have moved it since; both are the same.)
    for (const float value : late.replica.theta()) CHECK(value == 1);
    late.sync->end();
    old.sync->end();
  }
}

TEST_CASE("what is global begins as theta did before it was trained, also of a trainer alone") {
  enum class Ring { there, late, nobody_joins };
  for (const Ring ring : {Ring::there, Ring::late, Ring::nobody_joins}) {
    Replica replica(std::vector<float>(kDimension, 1));
    RingGroup group(kDimension, 1);
    const auto form = [&] { group.form({1, 0, {true}, nullptr}); };
    if (ring != Ring::late) form();
    RoundCounters counters;
    const CustomMix none;
    const Choice machine{"bmuf", {{"alpha", 1}, {"eta", 0.5}, {"momentum", 0}, {"nesterov", 0}}};
    Round round(make_synchroniser(machine), nullptr, &group, none, kDimension, counters);
    if (ring != Ring::nobody_joins) {
      CHECK(round.join(replica.discipline(), Deadline::in(kTimeout)) == (ring == Ring::there));
    }
    if (ring == Ring::late) form();
    replica.set(std::vector<float>(kDimension, 3));
    CHECK(round.run(replica.discipline(), Deadline::in(kTimeout)));
    // Half the way from where it began, or from where its first round found it.
    for (const float value : replica.theta()) CHECK(value == (ring == Ring::nobody_joins ? 3 : 2));
  }
}

TEST_CASE("nobody waits for others for longer than a round may last") {
  Trainer alone(Pace{}, 1);
  alone.stopped = true;  // else for kTimeout
  alone.begin();
  alone.sync->end();
}

TEST_CASE("a ring that was made before another, and comes after it, is none any more") {
  RingGroup group(kDimension, 1);
  group.form({3, 0, {true}, nullptr});
  group.form({2, 0, {true, true}, nullptr});
  CHECK(group.begin() == Peers::Begin::ready);
  std::vector<float> other(kDimension);
  Covered done;
  CHECK(group.sum(other, done, true, Deadline::in(kTimeout)).members == 1);
  CHECK(group.settled() == 3);
  group.form({3, 0, {true}, nullptr});
  CHECK(group.sum(other, done, true, Deadline::in(kTimeout)).members == 1);
  CHECK(group.ended() == 0);
}

namespace {

// Two that begin apart, and have the mean of both after each round, in three parts.
struct InParts {
  static constexpr std::size_t kParts = 3, kLength = kParts * kFragment;
  explicit InParts(const Pace& pace) {
    for (int i = 0; i < 2; ++i) {
      replicas.push_back(std::make_unique<Replica>(std::vector<float>(kLength, i == 0 ? 2 : 6)));
      syncs.push_back(make_trainer_sync(
          {make_synchroniser({"ma", {{"alpha", 1}}}), pace, kLength, {}, 0, kParts, kTimeout}, 1));
    }
    auto both = rings(1, {false, false});
    for (std::size_t i = 0; i < 2; ++i) syncs[i]->ring().form(std::move(both[i]));
    each([this](std::size_t i) {
      syncs[i]->begin({replicas[i]->discipline(), 1, kLength, stopped, [](std::exception_ptr) {}},
                      [] { return true; });
    });
  }
  void each(const auto& f) {
    std::jthread one([&] { f(1u); });
    f(0u);
  }
  bool together() {
    return replicas[0]->theta() == std::vector<float>(kLength, 4) &&
           replicas[1]->theta() == std::vector<float>(kLength, 4);
  }
  void end() {
    each([this](std::size_t i) { syncs[i]->end(); });
  }
  std::atomic<bool> stopped{false};
  std::vector<std::unique_ptr<Replica>> replicas;
  std::vector<std::unique_ptr<TrainerSync>> syncs;
};

}  // namespace

TEST_CASE("in parts, rounds go on until each part has been in one since theta moved") {
  InParts trainers(Pace{});
  trainers.syncs[0]->stepped(0);
  CHECK(comes_true([&] { return trainers.together(); }));
  trainers.end();
}

TEST_CASE("in parts, so many rounds follow a step, also in another ring, and no more") {
  constexpr std::size_t kParts = 3, kLength = kParts * kFragment;
  Replica replica(std::vector<float>(kLength, 1));
  RingGroup group(kLength, kParts);
  RoundCounters counters;
  const CustomMix none;
  Round round(make_synchroniser({"ma", {{"alpha", 1}}}), nullptr, &group, none, kLength, counters);
  const auto run = [&](bool moved) {
    CHECK(round.run(replica.discipline(), Deadline::in(kTimeout), moved));
    return counters.rounds.load();
  };
  group.form({1, 0, {true}, nullptr});
  CHECK(run(true) == 1);
  CHECK(round.owes());
  CHECK(run(false) == 2);
  CHECK(run(false) == 3);
  CHECK_FALSE(round.owes());
  CHECK(run(false) == 3);
  // The one that comes has its first round when each part has been in one.
  group.form({2, 0, {true}, nullptr});
  for (int part = 0; part < 3; ++part) {
    CHECK(group.ended() == 0);
    run(false);
  }
  CHECK(group.ended() == 1);
  CHECK(run(false) == 3);
}

TEST_CASE("in parts, who leaves does so when each part has been in a round since its last step") {
  const Pace every{Pace::Kind::iterations, {0}, {1000}};
  for (const Pace& pace : {Pace{}, every}) {
    InParts trainers(pace);
    trainers.each([&](std::size_t i) {
      trainers.syncs[i]->stepped(0);
      trainers.syncs[i]->leave(0);
    });
    trainers.end();
    CHECK(trainers.together());
    for (const auto& sync : trainers.syncs) CHECK(sync->ring().has_left());
  }
}

}  // namespace leashed
