// Several policy servers, each with a part of the parameters: with one worker every mode has the
// bits of one server, Sync with any number, whatever the sharding; and whatever connections end and
// whoever dies, each example is applied once by the first, and of each push every other server has
// its part or counts it as missing.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cluster/parts_run.h"
#include "leashed/base/error.h"
#include "leashed/server/sharding.h"
#include "leashed/staleness/registry.h"
#include "leashed/update/registry.h"

using namespace leashed;

namespace {

std::vector<Sharding> all_shardings(std::size_t servers) {
  const std::vector<std::size_t> ends = {2, 7, 8, kFeatures};
  const std::vector<double> costs = {3, 1, 4, 2};
  return {layerwise(ends, servers), memorywise(kFeatures, servers), packed(ends, costs, servers)};
}

bool alike(const std::string& mode) { return deciding(mode) == Deciding::alike; }

// What became of pushes, at each server.
void check_parts_counted(PartsRun& run, const std::string& mode) {
  const ModeCounts first = run.counts(0);
  if (first.exchanges == 0) CHECK(first.applied + first.stale + first.straggler == kExamples);
  CHECK(first.missing == 0);
  for (std::size_t s = 1; s < run.servers(); ++s) {
    CAPTURE(s);
    const ModeCounts here = run.counts(s);
    if (alike(mode)) {
      CHECK(here.applied + here.missing == first.applied);
      CHECK(here.straggler == first.straggler);
    } else {
      CHECK(here.applied + here.stale + here.straggler <= kExamples);
    }
  }
}

}  // namespace

TEST_CASE("one worker has on several servers the bits of one, by every mode and sharding") {
  for (const Choice& mode : all_modes()) {
    if (!has_server(mode) || mode.name == "ensemble") continue;
    CAPTURE(mode.name);
    const Squares source;
    for (const std::size_t servers : {2, 3}) {
      for (const Sharding& sharding : all_shardings(servers)) {
        PartsRun run(mode, 1, sharding);
        const ModeTrainResult threads = train_mode(source, run.data.view(), nullptr, run.machine,
                                                   run.context(1), {1, kBatch, kSeed, {}}, {});
        ModeTrainer trainer(kFeatures, 1, run.settings());
        run.tend(trainer);
        const ModeTrainResult found = run.train(trainer, 1, source);
        CHECK(trainer.ended());
        CHECK(found.training.reason == StopReason::epochs);
        CHECK(found.training.updates == threads.training.updates);
        CHECK(found.counts.applied == threads.counts.applied);
        REQUIRE(found.training.parameters.size() == kFeatures);
        CHECK(std::memcmp(found.training.parameters.data(), threads.training.parameters.data(),
                          kFeatures * sizeof(float)) == 0);
        CHECK(run.theta() == found.training.parameters);
        check_parts_counted(run, mode.name);
        for (std::size_t s = 1; s < servers; ++s) {
          const ModeCounts here = run.counts(s);
          CHECK(here.applied == threads.counts.applied);
          CHECK(here.exchanges == threads.counts.exchanges);
          const PartServer::Counters counted = run.others[s - 1]->counters();
          CHECK(counted.strange + counted.late_parts + counted.not_finite == 0);
        }
        run.forget(trainer);
      }
    }
  }
}

TEST_CASE("Sync with three workers has on several servers the bits of one") {
  const Squares source;
  for (const char* const name : {"sync", "switching"}) {
    for (const std::size_t servers : {2, 4}) {
      for (const Sharding& sharding : all_shardings(servers)) {
        PartsRun run({name}, 3, sharding);
        const ModeTrainResult threads = train_mode(source, run.data.view(), nullptr, run.machine,
                                                   run.context(3), {3, kBatch, kSeed, {}}, {});
        ModeTrainer two(kFeatures, 2, run.settings()), one(kFeatures, 1, run.settings(200));
        run.tend(two);
        run.tend(one);
        ModeTrainResult others;
        std::jthread beside([&] { others = run.train(one, 1, source); });
        const ModeTrainResult found = run.train(two, 2, source);
        beside.join();
        CHECK(found.training.parameters == threads.training.parameters);
        CHECK(others.training.parameters == threads.training.parameters);
        CHECK(found.training.updates == threads.training.updates);
        check_parts_counted(run, name);
        run.forget(two);
        run.forget(one);
      }
    }
  }
}

TEST_CASE("connections that are cut at any moment cost parts, and no example") {
  std::uint64_t cuts = 0, replaced = 0;
  std::uint32_t seed = 0;
  for (const Choice& mode : all_modes()) {
    if (!has_server(mode) || mode.name == "ensemble") continue;
    CAPTURE(mode.name);
    PartsRun run(mode, 3, memorywise(kFeatures, 3));
    run.cut(60, ++seed);
    Squares source;
    source.before = [](const std::atomic<bool>&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    ModeTrainer trainer(kFeatures, 3, run.settings());
    run.tend(trainer);
    const ModeTrainResult found = run.train(trainer, 3, source);
    CHECK(found.training.reason == StopReason::epochs);
    check_parts_counted(run, mode.name);
    CHECK(found.training.parameters == run.theta());
    const ModeTrainer::Counters counted = trainer.counters();
    CHECK(counted.strange + counted.hung == 0);
    cuts += counted.cut;
    for (const auto& other : run.others) replaced += other->counters().replaced;
    run.forget(trainer);
  }
  CHECK(cuts > 0);
}

TEST_CASE("a process of workers that dies takes no part with it, and comes back as another life") {
  for (const char* const name : {"sync", "asp", "gba", "hop_bw", "easgd"}) {
    CAPTURE(name);
    Choice mode{name};
    if (mode.name == "hop_bw") mode.settings["b3"] = 0;
    if (mode.name == "easgd") mode.settings["alpha"] = 0.5;
    PartsRun run(mode, 2, memorywise(kFeatures, 2));
    std::atomic<int> gradients{0};
    Squares dies, lives;
    dies.before = [&](const std::atomic<bool>& cancel) {
      if (++gradients < 3) return;
      while (!cancel) std::this_thread::yield();
    };
    auto dying = std::make_unique<ModeTrainer>(kFeatures, 1, run.settings(200));
    ModeTrainer other(kFeatures, 1, run.settings());
    run.tend(*dying);
    run.tend(other);
    std::jthread beside([&] { run.train(*dying, 1, dies); });
    std::jthread ends([&] {
      CHECK(comes_true([&] { return gradients >= 3 || dying->ended(); }));
      dying->end();
    });
    ModeTrainResult found;
    std::jthread trains([&] { found = run.train(other, 1, lives); });
    ends.join();
    beside.join();
    run.forget(*dying);
    ModeTrainer again(kFeatures, 1, run.settings(200, 2));
    run.tend(again);
    run.train(again, 1, lives);
    trains.join();
    check_parts_counted(run, name);
    CHECK(found.counts.applied + found.counts.stale <= kExamples);
    run.forget(other);
    run.forget(again);
  }
}

TEST_CASE("servers that no run can have are refused, and say so") {
  const PartsRun run({"sync"}, 1, memorywise(kFeatures, 2));
  CHECK_THROWS_WITH_AS(mode_shards("swarm", {{{0, 2}}, {{2, 4}}}, 4),
                       doctest::Contains("no server"), Error);
  CHECK_THROWS_AS(mode_shards("sync", {{{0, 2}}, {{3, 4}}}, 4), Error);
  CHECK_THROWS_AS(mode_shards("sync", {{{0, 2}}, {{1, 4}}}, 4), Error);
  CHECK_THROWS_AS(mode_shards("sync", {{{0, 4}}, {}}, 4), Error);
  CHECK_THROWS_AS(mode_shards("sync", {{{0, 4}}, {{3, 1}}}, 4), Error);
  const auto clips = make_rule({"sgd", {{"lr", 0.1}, {"clip_norm", 1}}});
  const auto plain = make_staleness({"none"});
  CHECK_THROWS_WITH_AS(require_parts(*clips, *plain, "policy_servers"),
                       doctest::Contains("policy_servers must be 1 with clip_norm"), Error);
}

TEST_CASE("commands are refused where each of several servers decides by itself") {
  PartsRun by_themselves({"gba"}, 1, memorywise(kFeatures, 2));
  by_themselves.first->quiet([](PolicyService& service) {
    CHECK_THROWS_WITH_AS(service.command(0), doctest::Contains("take switching or automatic"),
                         Error);
    CHECK(service.failure() == "");
  });
  PartsRun as_told({"switching"}, 1, memorywise(kFeatures, 2));
  as_told.first->quiet([](PolicyService& service) { service.command(1); });
}
