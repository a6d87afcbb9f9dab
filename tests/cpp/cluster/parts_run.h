// A run of a mode on several policy servers over sockets, each with a part of the parameters, and
// of the rows of a table, with trainers whose connections are made, and cut at some moments.
#pragma once

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/policy_job.h"
#include "cluster/wires.h"
#include "leashed/cluster/mode_trainer.h"
#include "leashed/cluster/part_server.h"
#include "leashed/cluster/policy_server.h"
#include "leashed/server/row_holder.h"
#include "leashed/table/table.h"
#include "leashed/update/registry.h"

namespace leashed {

inline constexpr std::uint64_t kPartRun = 1, kPartTerms = 2;

// A table of the rows that Squares reads, of which each server has some; several examples read one.
struct PartRows {
  static constexpr std::uint64_t kIds = 11;

  PartRows(std::size_t servers, bool grows)
      : growing(grows), placement({{grows, RowPlacement::kSpread}}, RowPlacement::evenly(servers)) {
    for (std::size_t s = 0; s < servers; ++s) {
      tables.push_back(made(placement.shards(0, s)));
      holders.push_back(
          std::make_unique<RowHolder>(std::vector{tables[s]}, std::vector<std::size_t>()));
    }
    for (std::uint64_t i = 0; i < kJobRows; ++i) ids.push_back(i * i % kIds);
    feature.ids = ids.data();
  }
  std::shared_ptr<Table> made(RowPlacement::Shards shards = RowPlacement::Shards().set()) const {
    TableSettings settings{
        .name = "a",
        .dim = kRowFloats,
        .rows = growing ? 0 : kIds,
        .initial = {"uniform", {{"bound", 0.5}}},
        .rule = {"adagrad", {{"lr", 0.05}, {"eps", 1e-10}, {"initial_accumulator", 0}}},
        .staleness = {"none"},
        .seed = 9};
    if (growing) {
      settings.max_bytes = std::size_t{1} << 20;
    } else {
      settings.shards = shards;
    }
    return std::make_shared<Table>(settings);
  }
  DatasetView view(const Drawn& data) const {
    DatasetView all = data.view();
    all.ids = {&feature, 1};
    return all;
  }
  std::vector<ServedTable> served() const {
    return {{"a", kRowFloats, growing ? std::uint64_t{0} : kIds}};
  }

  const bool growing;
  const RowPlacement placement;
  std::vector<std::shared_ptr<Table>> tables;  // by server
  std::vector<std::unique_ptr<RowHolder>> holders;
  std::vector<std::uint64_t> ids;
  IdFeature feature{};
};

// A run of a mode on several servers: these, and trainers whose connections it sees to.
class PartsRun {
 public:
  // Who writes down what it hears, for all of them; and rows of a table, spread over them.
  struct More {
    PolicyService::Heard heard = nullptr;
    PolicyService::Noted noted = nullptr;
    PartRows* rows = nullptr;
  };

  PartsRun(const Choice& mode, double workers, const Sharding& sharding)
      : PartsRun(mode, workers, sharding, {}) {}
  PartsRun(const Choice& mode, double workers, const Sharding& sharding, const More& more)
      : choice_(with_job(mode, workers, kExamples)),
        machine(modes::make_server_policy(choice_)),
        rule_(make_rule(kMomentum)),
        shards_(mode_shards(mode.name, sharding.shards, kFeatures)),
        rows_(more.rows) {
    const bool alike = shards_.by == Deciding::alike;
    const auto lanes = static_cast<std::size_t>(workers);
    for (std::size_t s = 0; s < shards_.servers(); ++s) {
      auto& part = parts_.emplace_back(shards_.size(s));
      shards_.gather(s, initial.data(), part.data());
    }
    first = std::make_unique<PolicyServer>(
        machine, context_of(0, lanes),
        PolicyService::Run{kPartRun, kPartTerms, 30, shards_.servers() - 1, alike}, more.heard,
        more.noted, nullptr, rows_ ? rows_->holders[0].get() : nullptr);
    for (std::size_t s = 1; s < shards_.servers(); ++s) {
      PartService::Run run{kPartRun, kPartTerms, 30 + s, s};
      run.recorded = more.heard != nullptr;
      others.push_back(std::make_unique<PartServer>(choice_, context_of(s, lanes), run,
                                                    rows_ ? rows_->holders[s].get() : nullptr));
    }
  }
  ~PartsRun() {
    tending_ = {};
    for (const int cable : cables_) close(cable);
  }

  ModeTrainer::Settings settings(std::uint64_t client = 100, std::uint64_t life = 1) const {
    return {kPartRun, kPartTerms, client, life, kLong, shards_};
  }
  DisciplineContext context(std::size_t workers) const {
    return {initial.data(), kFeatures, workers, 1, *rule_};
  }
  ModeTrainResult train(ModeTrainer& trainer, std::size_t lanes, const GradientSource& source) {
    ModeTrainOptions options{lanes, kBatch, kSeed, {}};
    options.evaluate_every = std::numeric_limits<double>::infinity();
    return trainer.train(source, rows_ ? rows_->view(data) : data.view(), nullptr, machine.rule(),
                         context(lanes), options, {});
  }
  void tend(ModeTrainer& trainer) {
    const std::lock_guard lock(mutex_);
    trainers_.push_back(&trainer);
    if (!tending_.joinable()) {
      tending_ = std::jthread([this](const std::stop_token& ends) {
        while (!ends.stop_requested()) {
          look();
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      });
    }
  }
  void forget(ModeTrainer& trainer) {
    const std::lock_guard lock(mutex_);
    std::erase(trainers_, &trainer);
  }
  // So many connections are cut, at some moments: no more, so that a slow machine comes to the end.
  void cut(std::size_t most, std::uint32_t seed) {
    cuts_left_ = most;
    random_.seed(seed);
  }
  std::vector<float> theta() {
    std::vector<float> all(kFeatures);
    first->quiet([&](PolicyService& service) { take(service.server(), 0, all); });
    for (std::size_t s = 1; s < shards_.servers(); ++s) {
      others[s - 1]->quiet([&](PartService& service) { take(service.server(), s, all); });
    }
    return all;
  }
  ModeCounts counts(std::size_t server) {
    ModeCounts found;
    if (server == 0) {
      first->quiet([&](PolicyService& service) {
        CHECK(service.failure() == "");
        found = service.server().counts();
      });
    } else {
      others[server - 1]->quiet([&](PartService& service) {
        CHECK(service.failure() == "");
        found = service.server().counts();
      });
    }
    return found;
  }
  std::size_t servers() const { return shards_.servers(); }

  Choice choice_;
  const modes::ServerPolicy machine;
  const std::vector<float> initial = std::vector<float>(kFeatures, 0.25f);
  const Drawn data;
  std::unique_ptr<PolicyServer> first;
  std::vector<std::unique_ptr<PartServer>> others;

 private:
  DisciplineContext context_of(std::size_t server, std::size_t workers) const {
    return {parts_[server].data(), shards_.size(server), workers, 1, *rule_};
  }
  void take(ParameterServer& server, std::size_t s, std::vector<float>& all) {
    const ParameterVector::Pin latest = server.holder().pull();
    shards_.scatter(s, latest.data(), all.data());
  }
  void look() {
    const std::lock_guard lock(mutex_);
    for (const auto& other : others) {
      if (other->follows()) continue;
      const auto [one, two] = pair_of_sockets();
      keep(one);
      first->adopt(one, true);
      other->follow(two, true);
    }
    for (ModeTrainer* const trainer : trainers_) {
      for (std::size_t slot = 0; slot < trainer->slots(); ++slot) {
        for (std::size_t s = 0; s < shards_.servers(); ++s) {
          if (trainer->missing(slot, s)) connect(*trainer, slot, s);
        }
      }
    }
    while (cuts_left_ > 0 && !cables_.empty() && random_() % 4 == 0) {
      --cuts_left_;
      const std::size_t which = random_() % cables_.size();
      shutdown(cables_[which], SHUT_RDWR);
      close(cables_[which]);
      cables_.erase(cables_.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
  void connect(ModeTrainer& trainer, std::size_t slot, std::size_t server) {
    const auto [one, two] = pair_of_sockets();
    keep(one);
    server == 0 ? first->adopt(one, true) : others[server - 1]->adopt(one, true);
    trainer.adopt(slot, server, two, true, Transport::tcp, kLong);
  }
  // A copy of the socket, to cut it by.
  void keep(int socket) {
    if (cuts_left_ == 0) return;
    cables_.push_back(dup(socket));
    if (cables_.size() < 64) return;
    close(cables_.front());  // (which ends nothing: the others have theirs)
    cables_.erase(cables_.begin());
  }

  const std::unique_ptr<const Rule> rule_;
  const ModeShards shards_;
  PartRows* const rows_;  // null: there are none
  std::vector<std::vector<float>> parts_;
  std::mutex mutex_;
  std::vector<ModeTrainer*> trainers_;
  std::vector<int> cables_;
  std::size_t cuts_left_ = 0;
  std::mt19937 random_;
  std::jthread tending_;
};

}  // namespace leashed
