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
#include "leashed/cluster/policy_server.h"
#include "leashed/cluster/remote_server.h"
#include "leashed/data/indexed_batches.h"
#include "leashed/engine/run.h"
#include "leashed/modes/mode_worker.h"
#include "leashed/modes/policy_threads.h"
#include "leashed/server/row_holder.h"
#include "leashed/update/registry.h"

namespace leashed {

inline constexpr std::uint64_t kReduceRun = 1, kReduceTerms = 2, kReduceBoot = 3;
inline constexpr std::uint64_t kSummingClients = 100;  // of a process

using SlowGradient = std::function<void(const std::atomic<bool>& cancel)>;

struct ReduceJob {
  explicit ReduceJob(const Choice& mode, double workers = 3, double examples = kExamples,
                     const Choice& rule_of = kMomentum, bool with_rows = false)
      : choice(with_job(mode, workers, examples)),
        machine(modes::make_server_policy(choice)),
        rule(make_rule(rule_of)),
        reads_rows(with_rows) {}
  DisciplineContext context(std::size_t workers) const {
    return {initial.data(), kFeatures, workers, 1, *rule};
  }
  PolicyServer serve(bool reduces = true, PolicyService::Heard heard = nullptr) const {
    const auto workers = static_cast<std::size_t>(choice.value("workers", 0));
    return {machine,
            context(workers),
            {kReduceRun, kReduceTerms, kReduceBoot, 0, false, reduces},
            std::move(heard),
            nullptr,
            nullptr,
            make_holder()};
  }
  // Of the rows that the next server serves; null: it has none.
  RowHolder* make_holder() const {
    holder = nullptr;
    if (reads_rows) {
      const TableSettings settings{
          .name = "a",
          .dim = kRowFloats,
          .rows = kJobRows,
          .initial = {"uniform", {{"bound", 0.5}}},
          .rule = {"adam", {{"lr", 0.02}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}}},
          .staleness = {"none"},
          .seed = 9};
      holder = std::make_unique<RowHolder>(std::vector{std::make_shared<Table>(settings)},
                                           std::vector<std::size_t>());
    }
    return holder.get();
  }
  DatasetView view() const { return reads_rows ? data.view_with_rows() : data.view(); }
  std::vector<float> rows() const {
    std::vector<float> all(reads_rows ? kJobRows * kRowFloats : 0);
    float* const to = all.data();
    const std::span<const std::uint64_t> ids(data.ids);
    if (reads_rows) holder->look({&ids, 1}, {&to, 1});
    return all;
  }

  const Choice choice;
  const modes::ServerPolicy machine;
  const std::vector<float> initial = std::vector<float>(kFeatures, 0.25f);
  const std::unique_ptr<const Rule> rule;
  const bool reads_rows;
  const Drawn data;
  mutable std::unique_ptr<RowHolder> holder{};  // of the server that serves now
};

struct SummedEnd {
  std::vector<float> theta;
  std::vector<float> rows;  // of sums_trained()
  ModeCounts counts;
  std::uint64_t updates;
  std::string failure;
};

inline SummedEnd summed_end(PolicyServer& server) {
  SummedEnd found;
  server.quiet([&](PolicyService& service) {
    const ParameterVector::Pin latest = service.server().holder().pull();
    found.theta.assign(latest.data(), latest.data() + kFeatures);
    found.counts = service.server().counts();
    found.updates = latest.t();
    CHECK(service.server().updates() == latest.t());  // all is at home
    found.failure = service.failure();
  });
  return found;
}

// A process of workers, as threads.
class Summing {
 public:
  Summing(const ReduceJob& job, std::size_t lanes, std::uint64_t number, std::uint64_t life,
          SlowGradient before = nullptr, bool reduces = true)
      : number(number),
        context_(job.context(lanes)),
        source_(job.reads_rows),
        batches_(job.view(), kBatch, kSeed),
        run(source_, job.view(), nothing_, {}, lanes, kBatch, job.reads_rows ? &looked_ : nullptr,
            Counting::Updates::by_server),
        remote(run.stop, batches_, job.machine.rule(), nullptr, kFeatures, lanes,
               {kReduceRun,
                kReduceTerms,
                number * kSummingClients,
                life,
                kLong,
                {},
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
  const ServedTables tables_{{{"a", kRowFloats, kJobRows}}, {0}};
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
  // Whether all have ended.
  bool tend() {
    bool all = true;
    for (const auto& each : processes) {
      for (std::size_t lane = 0; lane < each->lanes(); ++lane) {
        if (each->remote.missing(lane)) each->connect(server, lane);
      }
      for (const auto& [lane, client] : each->remote.wanted()) connect(*each, lane, client);
      all = all && each->ended();
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
  // Some connection between two of them.
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
  std::vector<std::unique_ptr<Summing>> processes{};
  std::vector<int> cables{};
};

inline SummedEnd sums_trained(const ReduceJob& job, const std::vector<std::size_t>& lanes,
                              bool reduces) {
  PolicyServer server = job.serve(reduces);
  Summed all{server};
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
  SummedEnd found = summed_end(server);
  found.rows = job.rows();
  return found;
}

}  // namespace leashed
