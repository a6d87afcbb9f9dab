// Workers over sockets whose tables' rows lie on several policy servers: what they read and what
// their gradients do is what it is where all are in one process, and cut connections cost no
// example.
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/wires.h"
#include "leashed/cluster/mode_trainer.h"
#include "leashed/cluster/part_server.h"
#include "leashed/cluster/policy_server.h"
#include "leashed/server/sharding.h"
#include "leashed/update/registry.h"
#include "modes/all_modes.h"
#include "modes/row_job.h"

using namespace leashed;

namespace {

constexpr std::size_t kServers = 2, kWorkers = 3;
constexpr std::uint64_t kTrained = 3 * row_job::kExamples;

// Two servers: the first table is spread, the second whole on the last one.
class RowParts {
 public:
  RowParts(Choice mode, std::size_t workers)
      : tables(row_job::tables_of(row_job::Kind::fixed, row_job::kAdam)),
        placement_({{false, RowPlacement::kSpread}, {false, kServers - 1}},
                   RowPlacement::evenly(kServers)),
        shards_(mode_shards(mode.name, memorywise(row_job::kFeatures, kServers).shards,
                            row_job::kFeatures)) {
    mode.settings.insert({{"workers", static_cast<double>(workers)},
                          {"batch", static_cast<double>(row_job::kBatch)},
                          {"examples", static_cast<double>(kTrained)}});
    machine = std::make_unique<modes::ServerPolicy>(modes::make_server_policy(mode));
    for (std::size_t s = 0; s < kServers; ++s) {
      shards_.gather(s, initial_.data(), parts_[s].data());
      for (std::size_t t = 0; t < tables.size(); ++t) {
        TableSettings settings = tables[t]->settings();
        settings.shards = placement_.shards(t, s);
        if (settings.shards.any()) of_[s].push_back(std::make_shared<Table>(settings));
      }
      holders_[s] = std::make_unique<RowHolder>(of_[s], std::vector<std::size_t>());
    }
    const bool alike = shards_.by == Deciding::alike;
    first = std::make_unique<PolicyServer>(*machine, of_server(0, workers),
                                           PolicyService::Run{1, 2, 3, kServers - 1, alike},
                                           nullptr, nullptr, nullptr, holders_[0].get());
    second = std::make_unique<PartServer>(mode, of_server(1, workers), PartService::Run{1, 2, 4, 1},
                                          holders_[1].get());
    std::vector<ServedTable> served;
    for (const auto& table : tables) served.push_back({table->settings().name, row_job::kDim, 30});
    trainer = std::make_unique<ModeTrainer>(row_job::kFeatures, workers,
                                            ModeTrainer::Settings{1, 2, 100, 1, kLong, shards_},
                                            std::move(served), placement_);
    workers_ = workers;
  }
  ~RowParts() {
    tending_ = {};
    for (const int cable : cables_) close(cable);
  }

  // cuts: so many, at some moments.
  ModeTrainResult train(std::size_t cuts = 0) {
    tending_ = std::jthread([this, cuts](const std::stop_token& ends) { tend(ends, cuts); });
    ModeTrainResult found =
        trainer->train(source_, data.view(), nullptr, machine->rule(), whole(), options(), {});
    tending_ = {};
    return found;
  }
  ModeTrainResult on_threads() {
    ModeTrainOptions all = options();
    all.tables = tables;
    return train_mode(source_, data.view(), nullptr, *machine, whole(), all, {});
  }
  // Whether the servers' rows are those of threads.
  bool alike() {
    for (std::size_t t = 0; t < tables.size(); ++t) {
      for (std::uint64_t id = 0; id < 30; ++id) {
        const std::size_t s = placement_(t, id);
        Table& here = *of_[s][s == 0 ? 0 : t];
        std::vector<float> one(row_job::kDim), other(row_job::kDim);
        std::uint32_t versions[2];
        tables[t]->lookup(&id, 1, one.data(), &versions[0]);
        here.lookup(&id, 1, other.data(), &versions[1]);
        if (one != other || versions[0] != versions[1]) return false;
      }
    }
    return true;
  }

  const row_job::Data data;
  const row_job::Tables tables;  // of threads
  std::unique_ptr<modes::ServerPolicy> machine;
  std::unique_ptr<PolicyServer> first;
  std::unique_ptr<PartServer> second;
  std::unique_ptr<ModeTrainer> trainer;

 private:
  DisciplineContext whole() const {
    return {initial_.data(), row_job::kFeatures, workers_, 1, *rule_};
  }
  DisciplineContext of_server(std::size_t s, std::size_t workers) const {
    return {parts_[s].data(), shards_.size(s), workers, 1, *rule_};
  }
  ModeTrainOptions options() const {
    ModeTrainOptions all{workers_, row_job::kBatch, row_job::kSeed, {}};
    all.evaluate_every = 1e9;  // before, and behind the end
    return all;
  }
  void tend(const std::stop_token& ends, std::size_t cuts) {
    std::mt19937 random(5);
    const auto wired = [&](const auto& take) {
      const auto [one, other] = pair_of_sockets();
      if (cuts > 0) cables_.push_back(dup(one));
      take(one, other);
    };
    while (!ends.stop_requested()) {
      if (!second->follows()) {
        wired([&](int one, int other) {
          first->adopt(one, true);
          second->follow(other, true);
        });
      }
      for (std::size_t slot = 0; slot < trainer->slots(); ++slot) {
        for (std::size_t s = 0; s < kServers; ++s) {
          if (!trainer->missing(slot, s)) continue;
          wired([&](int one, int other) {
            s == 0 ? first->adopt(one, true) : second->adopt(one, true);
            trainer->adopt(slot, s, other, true, Transport::tcp, kLong);
          });
        }
      }
      if (cuts > 0 && !cables_.empty() && random() % 2 == 0) {
        --cuts;
        shutdown(cables_[random() % cables_.size()], SHUT_RDWR);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200 + random() % 2000));
    }
  }

  const row_job::Source source_;
  const RowPlacement placement_;
  const ModeShards shards_;
  const std::unique_ptr<const Rule> rule_ = make_rule(row_job::kSgd);
  const std::vector<float> initial_ = std::vector<float>(row_job::kFeatures, 0.25f);
  std::vector<float> parts_[kServers] = {std::vector<float>(row_job::kFeatures),
                                         std::vector<float>(row_job::kFeatures)};
  row_job::Tables of_[kServers];
  std::unique_ptr<RowHolder> holders_[kServers];
  std::size_t workers_ = 1;
  std::vector<int> cables_;
  std::jthread tending_;
};

bool sends_gradients(const Choice& mode) {
  for (const char* name : {"all_reduce", "swarm", "go_sgd", "ad_psgd", "d_psgd", "prague",
                           "ensemble", "easgd", "local_sgd"}) {
    if (mode.name == name) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("with rows on several servers one worker has the bits of a thread, and what it reads") {
  for (const Choice& mode : all_modes()) {
    if (!sends_gradients(mode)) continue;
    CAPTURE(mode.name);
    RowParts run(mode, 1);
    const ModeTrainResult threads = run.on_threads(), found = run.train();
    CHECK(found.training.reason == StopReason::epochs);
    CHECK(found.training.parameters == threads.training.parameters);
    CHECK(run.alike());
    REQUIRE(found.training.evaluations.size() == threads.training.evaluations.size());
    for (std::size_t i = 0; i < found.training.evaluations.size(); ++i) {
      CHECK(found.training.evaluations[i].loss == threads.training.evaluations[i].loss);
    }
    CHECK(found.training.rows.applied == threads.training.rows.applied);
    CHECK(found.training.rows.staleness == threads.training.rows.staleness);
    CHECK(run.second->counters().lookups == run.second->counters().pushes);
    CHECK(run.second->counters().reads > 0);
    CHECK(run.second->counters().strange + run.second->counters().late_parts == 0);
  }
}

TEST_CASE("rounds of several workers with rows on several servers have the bits of threads") {
  for (const char* const mode : {"sync", "switching"}) {
    CAPTURE(mode);
    RowParts run({mode}, kWorkers);
    const ModeTrainResult threads = run.on_threads(), found = run.train();
    CHECK(found.training.parameters == threads.training.parameters);
    CHECK(run.alike());
  }
}

TEST_CASE("connections with several servers that are cut at any moment cost rows, and no example") {
  std::uint64_t cut = 0;
  for (const Choice& mode : all_modes()) {
    if (!sends_gradients(mode)) continue;
    CAPTURE(mode.name);
    RowParts run(mode, kWorkers);
    const ModeTrainResult found = run.train(60);
    CHECK(found.training.reason == StopReason::epochs);
    CHECK(found.counts.applied + found.counts.stale + found.counts.straggler == kTrained);
    CHECK(run.trainer->counters().strange == 0);
    run.first->quiet([](PolicyService& service) { CHECK(service.failure() == ""); });
    run.second->quiet([](PartService& service) { CHECK(service.failure() == ""); });
    cut += run.trainer->counters().cut;
  }
  CHECK(cut > 0);
}

TEST_CASE("a trainer is told where the rows of all tables are") {
  const ModeShards shards = mode_shards("asp", memorywise(4, 2).shards, 4);
  const ModeTrainer::Settings settings{1, 2, 100, 1, kLong, shards};
  CHECK_THROWS_WITH_AS(ModeTrainer(4, 1, settings, {{"a", 3, 30}}),
                       doctest::Contains("placement must say"), Error);
}
