// Trainers in one process, over socket pairs: what one is that comes late.
#include <doctest/doctest.h>

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

}  // namespace leashed
