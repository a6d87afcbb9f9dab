// A run whose mode switches while it trains, between workers who sum among themselves and a server
// that does: whoever dies at whatever moment, each example is once in the parameters, or counted,
// and these are those of a server that has summed all that its machine heard of.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "asked.h"
#include "cluster/summing_world.h"
#include "leashed/policy/automatic.h"
#include "leashed/policy/gba.h"

using namespace leashed;

namespace {

using SwitchMode = modes::Gba::Mode;

SwitchMode mode_of(const modes::ServerPolicy& machine) {
  if (const auto* const gba = machine.as<modes::Gba>()) return gba->mode();
  if (const auto* const own = machine.as<modes::Automatic>()) return own->mode();
  return SwitchMode::sync;
}

// Is told what a run's machine hears, and computes each gradient on what it has granted itself.
class SummingAlone final : Sink {
 public:
  explicit SummingAlone(const ReduceJob& job)
      : batches_(job.data.view(), kBatch, kSeed),
        server_(job.machine, job.context(static_cast<std::size_t>(job.choice.value("workers", 0)))),
        workspace_(source_.make_workspace()) {}

  void hear(const modes::Event& event, Time at) {
    const SwitchMode before = mode_of(server_.machine());
    const bool pushes = event.kind == modes::Event::Kind::push;
    AlignedArray<float> values(kFeatures);
    Payload payload{&values, 0};
    if (pushes) {
      Seat& seat = seats_.at(event.node);
      REQUIRE(seat.lease.ticket == event.ticket);
      Batch batch;
      batches_.fill_span(seat.lease.first, seat.lease.count, batch);
      source_.gradient(seat.theta.data(), batch.view, values.data(), *workspace_, never_);
      payload.examples = seat.lease.count;
      stale_ += seat.t != server_.updates();
    }
    server_.handle(event, pushes ? &payload : nullptr, at, *this);
    switches_ += mode_of(server_.machine()) != before;
  }

  struct Found {
    std::vector<float> theta{};
    std::uint64_t switches = 0;
    std::uint64_t stale = 0;  // gradients on parameters that had changed since
  };
  Found found() {
    const ParameterVector::Pin latest = server_.holder().pull();
    return {{latest.data(), latest.data() + kFeatures}, switches_, stale_};
  }

 private:
  struct Seat {
    modes::Lease lease{};
    std::vector<float> theta{};
    std::uint64_t t = 0;
  };

  void grant(Grant grant) override {
    if (grant.node >= seats_.size()) seats_.resize(grant.node + 1);
    seats_[grant.node] = {
        grant.lease, {grant.pulled.data(), grant.pulled.data() + kFeatures}, grant.t};
  }
  void wake(Time) override {}
  void meet(std::span<const modes::Node>, modes::Node) override {}
  void end(modes::Node) override {}
  void settled(modes::Node, const Publication&) override {}

  const Squares source_;
  const IndexedBatches batches_;
  ParameterServer server_;
  const std::unique_ptr<Workspace> workspace_;
  const std::atomic<bool> never_{false};
  std::vector<Seat> seats_;  // by node
  std::uint64_t switches_ = 0, stale_ = 0;
};

// A run of so many workers, each a process, and who hears what it hears.
struct SwitchedRun {
  SwitchedRun(const ReduceJob& of, std::size_t count, SlowGradient before)
      : job(of),
        alone(of),
        server(
            of.serve(true, [this](const modes::Event& event, Time at) { alone.hear(event, at); })),
        slow(std::move(before)) {
    all.serve_parts(of);
    for (std::size_t i = 0; i < count; ++i) all.processes.push_back(process(i));
  }
  std::unique_ptr<Summing> process(std::size_t i) {
    return std::make_unique<Summing>(job, 1, i + 1, ++life, slow);
  }
  // As it is once all have ended; what its server has counted.
  PolicyServer::Counters counted(SummedEnd& end) {
    for (const auto& each : all.processes) CHECK(each->failure() == "");
    end = summed_end(job, all);
    CHECK(end.failure == "");
    const PolicyServer::Counters found = server.counters();
    CHECK(end.counts.applied + end.counts.stale + found.rounds.lost_examples == kExamples);
    CHECK(end.counts.missing + end.counts.straggler + end.counts.late == 0);
    return found;
  }
  // The server hears of connections that end, after the last update too.
  SummingAlone::Found summed_alone() {
    SummingAlone::Found found;
    server.quiet([&](PolicyService&) { found = alone.found(); });
    return found;
  }

  const ReduceJob& job;
  SummingAlone alone;
  PolicyServer server;
  SlowGradient slow;
  std::uint64_t life = 0;
  Summed all{server};
};

}  // namespace

TEST_CASE("live switches with deaths at random moments have the bits of a server that sums") {
  const std::uint64_t wanted = asked_for("LEASHED_SWITCHES", 50);
  std::uint64_t switches = 0, deaths = 0, cuts = 0, alike = 0, runs = 0, lost = 0;
  for (std::uint32_t seed = 0; switches < wanted; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const std::size_t count = 2 + random() % 3;
    const Choice modes[] = {{"switching", {{"m", static_cast<double>(count)}, {"iota", 2}}},
                            {"switching", {{"m", 2}, {"iota", 1}}},
                            {"automatic", {{"m", 2}, {"window_ns", 5e6}, {"windows", 1}}}};
    const ReduceJob job(modes[random() % 3], static_cast<double>(count), kExamples, kMomentum,
                        false, 1 + seed % 3);
    SwitchedRun run(job, count, [](const std::atomic<bool>&) {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    });
    int faults = 4;
    REQUIRE(comes_true([&] {
      if (random() % 2 == 0) {
        run.server.quiet([&](PolicyService& service) { service.command(random() % 2); });
      }
      if (faults > 0 && random() % 8 == 0) {
        --faults;
        auto& process = run.all.processes[random() % count];
        const std::size_t which = static_cast<std::size_t>(&process - run.all.processes.data());
        if (random() % 2 == 0) {
          ++cuts;
          run.all.cut_any(random);
        } else if (random() % 8 == 0) {  // all at once, with what nobody else has
          deaths += count;
          for (auto& each : run.all.processes) each->kill();
          for (std::size_t i = 0; i < count; ++i) {
            run.all.processes[i].reset();
            run.all.processes[i] = run.process(i);
          }
        } else if (!process->ended()) {
          ++deaths;
          process->kill();
          process.reset();
          process = run.process(which);
        }
      }
      return run.all.tend();
    }));
    SummedEnd end;
    const PolicyServer::Counters counted = run.counted(end);
    const SummingAlone::Found alone = run.summed_alone();
    if (counted.rounds.lost_updates == 0 && end.missing == 0) {
      CHECK(end.theta == alone.theta);
      ++alike;
    }
    ++runs;
    lost += counted.rounds.lost_updates;
    switches += alone.switches;
  }
  CHECK(deaths > 0);
  CHECK(alike > 0);
  MESSAGE(switches, " switches in ", runs, " runs, ", deaths, " deaths, ", cuts, " cuts, ", lost,
          " updates lost; ", alike, " runs of none lost have the bits of a server that sums");
}

// Whoever has a lease of GBA has the mode go back first: it makes one update of those whose workers
// have the newest parameters.
TEST_CASE("where nothing is stale, live switches of several workers have the bits of Sync") {
  const std::uint64_t wanted = asked_for("LEASHED_SWITCHES", 50);
  std::uint64_t switches = 0;
  for (std::uint32_t seed = 0; switches < wanted; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const std::size_t count = 2 + seed % 3;
    const auto workers = static_cast<double>(count);
    const SummedEnd by_server =
        sums_trained(ReduceJob({"sync"}, workers), std::vector<std::size_t>(count, 1), false);
    const ReduceJob job({"switching", {{"m", workers}}}, workers, kExamples, kMomentum, false,
                        1 + seed % 2);
    PolicyServer* server = nullptr;
    SwitchedRun run(job, count, [&](const std::atomic<bool>&) {
      server->quiet([](PolicyService& service) {
        if (mode_of(service.server().machine()) == SwitchMode::gba) service.command(0);
      });
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    });
    server = &run.server;
    REQUIRE(comes_true([&] {
      if (random() % 2 == 0) {
        run.server.quiet([](PolicyService& service) {
          if (mode_of(service.server().machine()) == SwitchMode::sync) service.command(1);
        });
      }
      return run.all.tend();
    }));
    SummedEnd end;
    const PolicyServer::Counters counted = run.counted(end);
    CHECK(counted.rounds.updates > 0);
    CHECK(counted.rounds.lost_updates + counted.departures == 0);
    const SummingAlone::Found alone = run.summed_alone();
    CHECK(alone.stale == 0);
    CHECK(end.theta == by_server.theta);
    switches += alone.switches;
  }
  MESSAGE(switches, " switches of two to four workers");
}
