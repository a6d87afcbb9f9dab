// Workers who sum their gradients among themselves, led by a policy server, over sockets: processes
// of them, as threads of this one.
#pragma once

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/policy_job.h"
#include "cluster/wires.h"
#include "leashed/cluster/looked_rows.h"
#include "leashed/cluster/mode_shards.h"
#include "leashed/cluster/part_server.h"
#include "leashed/cluster/policy_server.h"
#include "leashed/cluster/remote_server.h"
#include "leashed/data/indexed_batches.h"
#include "leashed/engine/run.h"
#include "leashed/modes/mode_worker.h"
#include "leashed/modes/policy_threads.h"
#include "leashed/server/row_holder.h"
#include "leashed/server/sharding.h"
#include "leashed/table/row_placement.h"
#include "leashed/update/registry.h"

namespace leashed {

inline constexpr std::uint64_t kReduceRun = 1, kReduceTerms = 2, kReduceBoot = 3;
inline constexpr std::uint64_t kSummingClients = 100;  // of a process

using SlowGradient = std::function<void(const std::atomic<bool>& cancel)>;

struct ReduceJob {
  // servers: policy servers, of which each has a part of the parameters and of the rows.
  explicit ReduceJob(const Choice& mode, double workers = 3, double examples = kExamples,
                     const Choice& rule_of = kMomentum, bool with_rows = false,
                     std::size_t servers = 1)
      : choice(with_job(mode, workers, examples)),
        machine(modes::make_server_policy(choice)),
        rule(make_rule(rule_of)),
        reads_rows(with_rows),
        shards(mode_shards(mode.name, memorywise(kFeatures, servers).shards, kFeatures)),
        holders(servers) {
    for (std::size_t s = 0; s < servers; ++s) {
      shards.gather(s, initial.data(), parts.emplace_back(shards.size(s)).data());
    }
  }
  DisciplineContext context(std::size_t workers) const {
    return {initial.data(), kFeatures, workers, 1, *rule};
  }
  DisciplineContext context_of(std::size_t server) const {
    const auto workers = static_cast<std::size_t>(choice.value("workers", 0));
    return {parts[server].data(), shards.size(server), workers, 1, *rule};
  }
  std::size_t servers() const { return shards.servers(); }
  PolicyServer serve(bool reduces = true, PolicyService::Heard heard = nullptr) const {
    PolicyService::Run run{kReduceRun,    kReduceTerms,  kReduceBoot,
                           servers() - 1, servers() > 1, reduces};
    run.shards = shards;
    return {machine, context_of(0), run, std::move(heard), nullptr, nullptr, make_holder()};
  }
  // One behind the first.
  std::unique_ptr<PartServer> serve_part(std::size_t server, bool reduces) const {
    PartService::Run run{kReduceRun, kReduceTerms, kReduceBoot + server, server};
    run.reduces = reduces;
    return std::make_unique<PartServer>(choice, context_of(server), run, make_holder(server));
  }
  // Of the rows that the next server serves; null: it has none.
  RowHolder* make_holder(std::size_t server = 0) const {
    std::unique_ptr<RowHolder>& holder = holders[server];
    holder = nullptr;
    if (reads_rows) {
      TableSettings settings{
          .name = "a",
          .dim = kRowFloats,
          .rows = kJobRows,
          .initial = {"uniform", {{"bound", 0.5}}},
          .rule = {"adam", {{"lr", 0.02}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}}},
          .staleness = {"none"},
          .seed = 9};
      settings.shards = placement.shards(0, server);
      holder = std::make_unique<RowHolder>(std::vector{std::make_shared<Table>(settings)},
                                           std::vector<std::size_t>());
    }
    return holder.get();
  }
  DatasetView view() const { return reads_rows ? data.view_with_rows() : data.view(); }
  std::vector<float> rows() const {
    std::vector<float> all(reads_rows ? kJobRows * kRowFloats : 0);
    for (std::size_t i = 0; reads_rows && i < data.ids.size(); ++i) {
      float* const to = all.data() + i * kRowFloats;
      const std::span<const std::uint64_t> id(&data.ids[i], 1);
      holders[placement(0, data.ids[i])]->look({&id, 1}, {&to, 1});
    }
    return all;
  }

  const Choice choice;
  const modes::ServerPolicy machine;
  const std::vector<float> initial = std::vector<float>(kFeatures, 0.25f);
  const std::unique_ptr<const Rule> rule;
  const bool reads_rows;
  const ModeShards shards;
  std::vector<std::vector<float>> parts{};  // of `initial`, by server
  const Drawn data;
  mutable std::vector<std::unique_ptr<RowHolder>> holders;  // of the servers that serve now
  const RowPlacement placement{{{false, RowPlacement::kSpread}},
                               RowPlacement::evenly(shards.servers())};
};

// A process of workers, as threads.
class Summing {
 public:
  Summing(const ReduceJob& job, std::size_t lanes, std::uint64_t number, std::uint64_t life,
          SlowGradient before = nullptr, bool reduces = true)
      : number(number),
        context_(job.context(lanes)),
        source_(job.reads_rows),
        tables_{{{"a", kRowFloats, kJobRows}}, {0}, job.servers(), job.placement},
        batches_(job.view(), kBatch, kSeed),
        run(source_, job.view(), nothing_, {}, lanes, kBatch, job.reads_rows ? &looked_ : nullptr,
            Counting::Updates::by_server),
        remote(run.stop, batches_, job.machine.rule(), nullptr, kFeatures, lanes,
               {kReduceRun, kReduceTerms, number * kSummingClients, life, kLong, job.shards,
                reduces ? &context_ : nullptr},
               job.reads_rows ? &tables_ : nullptr),
        cables_(lanes, -1),
        seats_(lanes) {
    source_.before = std::move(before);
    run.observe(nullptr, {});
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      seats_[lane].number = static_cast<std::uint32_t>(lane);
      seats_[lane].gradient = AlignedArray<float>(kFeatures);
    }
    for (Lane& lane : seats_) {
      workers_.emplace_back(run, remote, job.machine.rule(), nullptr, lane);
      threads_.emplace_back([this, &worker = workers_.back()] {
        worker.work();
        ended_.fetch_add(1, std::memory_order_relaxed);  // a count; join hands over
      });
    }
  }
  ~Summing() {
    run.stop.stop(StopReason::interrupted);
    threads_.clear();
    unplug();
  }

  bool ended() const { return ended_.load(std::memory_order_relaxed) == seats_.size(); }
  std::size_t lanes() const { return seats_.size(); }
  void connect(PartServer& server, std::size_t lane, std::size_t number_of) {
    const auto [one, other] = pair_over_loopback();
    server.adopt(one, true);
    remote.adopt(lane, other, true, Transport::tcp, number_of);
  }
  void connect(PolicyServer& server, std::size_t lane) {
    const auto [one, other] = pair_over_loopback();
    close(cables_[lane]);
    cables_[lane] = dup(other);
    server.adopt(one, true);
    remote.adopt(lane, other, true);
  }
  void cut(std::size_t lane) { shutdown(cables_[lane], SHUT_RDWR); }
  // As a process that is killed: nobody hears from it any more.
  void kill() {
    for (std::size_t lane = 0; lane < lanes(); ++lane) cut(lane);
  }
  std::string failure() {
    const std::lock_guard lock(run.failure_mutex);
    if (!run.failure) return "";
    try {
      std::rethrow_exception(run.failure);
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  const std::uint64_t number;

 private:
  struct Nothing final : Observed {
    void with_snapshot(const std::function<void(const float*, std::uint64_t)>&) override {}
    std::size_t live_vectors() const override { return 0; }
  };
  void unplug() {
    for (int& cable : cables_) close(std::exchange(cable, -1));
  }

  const DisciplineContext context_;
  Squares source_;
  const ServedTables tables_;
  const std::atomic<bool> over_{false};
  LookedRows looked_{tables_, over_, nullptr};  // by nobody: who works looks up by its lane
  const IndexedBatches batches_;
  Nothing nothing_;

 public:
  Run run;
  RemoteServer remote;

 private:
  std::vector<int> cables_;  // a copy of each lane's socket, to cut it by
  std::vector<Lane> seats_;
  std::list<ModeWorker> workers_;
  std::atomic<std::size_t> ended_{0};
  std::vector<std::jthread> threads_;
};

// Processes of one run, and whoever connects them.
struct Summed {
  void serve_parts(const ReduceJob& job, bool reduces = true) {
    for (std::size_t s = 1; s < job.servers(); ++s) others.push_back(job.serve_part(s, reduces));
  }
  // Whether all have ended.
  bool tend() {
    bool all = true;
    for (const auto& each : processes) {
      for (std::size_t lane = 0; lane < each->lanes(); ++lane) {
        if (each->remote.missing(lane)) each->connect(server, lane);
        for (std::size_t s = 1; s <= others.size(); ++s) {
          if (each->remote.missing(lane, s)) each->connect(*others[s - 1], lane, s);
        }
      }
      for (const auto& [lane, client] : each->remote.wanted()) connect(*each, lane, client);
      all = all && each->ended();
    }
    for (const auto& other : others) {
      if (other->follows()) continue;
      const auto [one, it] = pair_over_loopback();
      if (cables.size() < 64) cables.push_back(dup(one));
      server.adopt(one, true);
      other->follow(it, true);
    }
    return all;
  }
  void connect(Summing& from, std::size_t lane, std::uint64_t client) {
    for (const auto& to : processes) {
      if (to->number != client / kSummingClients || to->ended()) continue;
      const auto [one, other] = pair_over_loopback();
      if (cables.size() < 64) cables.push_back(dup(one));
      from.remote.adopt_sum(lane, client, one, true, Transport::tcp, Role::offers);
      to->remote.adopt_sum(client % kSummingClients, from.number * kSummingClients + lane, other,
                           true, Transport::tcp, Role::accepts);
    }
  }
  // Some connection between two of them, or of two servers.
  void cut_any(std::mt19937& random) {
    if (cables.empty()) return;
    const std::size_t which = random() % cables.size();
    shutdown(cables[which], SHUT_RDWR);
    close(cables[which]);
    cables.erase(cables.begin() + static_cast<std::ptrdiff_t>(which));
  }
  ~Summed() {
    for (const int cable : cables) close(cable);
  }

  PolicyServer& server;
  std::vector<std::unique_ptr<PartServer>> others{};  // behind it
  std::vector<std::unique_ptr<Summing>> processes{};
  std::vector<int> cables{};
};

struct SummedEnd {
  std::vector<float> theta = std::vector<float>(kFeatures);
  std::vector<float> rows{};  // of sums_trained()
  ModeCounts counts{};        // of the first server, but for its rows, which are of all
  std::uint64_t missing = 0;  // of the others
  std::uint64_t updates = 0;
  std::string failure{};
};

inline SummedEnd summed_end(const ReduceJob& job, Summed& all) {
  SummedEnd found;
  std::uint64_t position = 0;
  const auto see = [&](std::size_t s, auto& service) {
    const ParameterVector::Pin latest = service.server().holder().pull();
    job.shards.scatter(s, latest.data(), found.theta.data());
    CHECK(service.server().updates() == latest.t());  // all is at home
    found.failure += service.failure();
    return latest.t();
  };
  all.server.quiet([&](PolicyService& service) {
    found.updates = see(0, service);
    found.counts = service.server().counts();
    position = service.position();
  });
  for (std::size_t s = 1; s < job.servers(); ++s) {
    REQUIRE(comes_true([&] {
      all.tend();
      bool there = false;
      all.others[s - 1]->quiet([&](PartService& of) { there = of.position() >= position; });
      return there;
    }));
    all.others[s - 1]->quiet([&](PartService& service) {
      see(s, service);
      const ModeCounts& counts = service.server().counts();
      CHECK(counts.applied + counts.missing == found.counts.applied);
      found.missing += counts.missing;
      found.counts.rows.add(counts.rows);
    });
    CHECK(all.others[s - 1]->counters().strange == 0);
  }
  return found;
}

inline SummedEnd sums_trained(const ReduceJob& job, const std::vector<std::size_t>& lanes,
                              bool reduces) {
  PolicyServer server = job.serve(reduces);
  Summed all{server};
  all.serve_parts(job, reduces);
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    all.processes.push_back(std::make_unique<Summing>(job, lanes[i], i + 1, 1, nullptr, reduces));
  }
  REQUIRE(comes_true([&] { return all.tend(); }));
  for (const auto& each : all.processes) {
    CHECK(each->failure() == "");
    CHECK(each->run.stop.reason() == StopReason::epochs);
  }
  const PolicyServer::Counters counted = server.counters();
  CHECK((counted.rounds.updates > 0) == reduces);
  CHECK(counted.strange + counted.lost + counted.rounds.lost_updates == 0);
  if (reduces) CHECK(counted.pushes == 0);
  SummedEnd found = summed_end(job, all);
  found.rows = job.rows();
  return found;
}

}  // namespace leashed
