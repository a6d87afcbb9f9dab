// A trainer whose mode's server lies elsewhere: it trains what that leases, to the bits of threads
// with a server of their own, looks at the server's parameters, and ends when it is told to.
#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/policy_job.h"
#include "cluster/tending.h"
#include "cluster/wires.h"
#include "leashed/cluster/mode_trainer.h"
#include "leashed/cluster/policy_server.h"
#include "leashed/update/registry.h"

using namespace leashed;

namespace {

constexpr ModeTrainer::Settings kAlike{1, 2, 100, 1, kLong};

// Of a trainer with more lanes than that compute at once.
ModeTrainer::Settings ahead(std::size_t at_once) {
  ModeTrainer::Settings settings = kAlike;
  settings.at_once = at_once;
  return settings;
}

// What a server and its trainers are made from.
struct LedJob {
  explicit LedJob(const Choice& mode, double workers)
      : machine(modes::make_server_policy(with_job(mode, workers, kExamples))),
        rule(make_rule(kMomentum)) {}
  DisciplineContext context(std::size_t workers) const {
    return {initial.data(), kFeatures, workers, 1, *rule};
  }

  const modes::ServerPolicy machine;
  const std::vector<float> initial = std::vector<float>(kFeatures, 0.25f);
  const std::unique_ptr<const Rule> rule;
  const Drawn data;
};

ModeTrainOptions options_of(std::size_t workers) {
  ModeTrainOptions options{workers, kBatch, kSeed, {}};
  options.evaluate_every = std::numeric_limits<double>::infinity();
  return options;
}

}  // namespace

TEST_CASE("a trainer of one worker has the bits of one thread, and the server's counts") {
  for (const Choice& mode : all_modes()) {
    if (!has_server(mode) || mode.name == "ensemble") continue;
    CAPTURE(mode.name);
    const LedJob job(mode, 1);
    const Squares source;
    const ModeTrainResult threads = train_mode(source, job.data.view(), nullptr, job.machine,
                                               job.context(1), options_of(1), {});
    PolicyServer server(job.machine, job.context(1), {kAlike.run, kAlike.terms, 3});
    ModeTrainer trainer(kFeatures, 1, kAlike);
    const Tending tending(server, trainer);
    const ModeTrainResult found = trainer.train(
        source, job.data.view(), nullptr, job.machine.rule(), job.context(1), options_of(1), {});
    CHECK(trainer.ended());
    CHECK(found.training.reason == StopReason::epochs);
    CHECK(found.training.updates == threads.training.updates);
    CHECK(found.counts.applied == threads.counts.applied);
    CHECK(found.counts.exchanges == threads.counts.exchanges);
    REQUIRE(found.training.parameters.size() == kFeatures);
    CHECK(std::memcmp(found.training.parameters.data(), threads.training.parameters.data(),
                      kFeatures * sizeof(float)) == 0);
    CHECK(server.counters().looks > 0);
    CHECK(trainer.counters().examples == kExamples);
    CHECK(found.counts.worker_examples == std::vector<std::uint64_t>{kExamples});
  }
}

TEST_CASE("a trainer that is told that the run is over waits for nobody") {
  const LedJob job({"sync"}, 2);
  const Squares source;
  ModeTrainer trainer(kFeatures, 2, kAlike);
  std::jthread tells([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    trainer.end();
  });
  const ModeTrainResult found = trainer.train(source, job.data.view(), nullptr, job.machine.rule(),
                                              job.context(2), options_of(2), {});
  CHECK_FALSE(trainer.ended());
  CHECK(found.training.reason == StopReason::interrupted);
  CHECK(found.training.parameters == job.initial);  // nothing was looked at
  for (std::size_t slot = 0; slot < trainer.slots(); ++slot) CHECK_FALSE(trainer.missing(slot, 0));
}

TEST_CASE("Ctrl-C ends a trainer whose server does not come") {
  const LedJob job({"sync"}, 1);
  const Squares source;
  ModeTrainer trainer(kFeatures, 1, kAlike);
  int asked = 0;
  TrainCallbacks callbacks;
  callbacks.interrupted = [&] { return ++asked == 1; };  // once, as a signal comes
  ModeTrainOptions options = options_of(1);
  options.evaluate_every = 0;
  const ModeTrainResult found = trainer.train(source, job.data.view(), nullptr, job.machine.rule(),
                                              job.context(1), options, callbacks);
  CHECK(found.training.reason == StopReason::interrupted);
  CHECK(found.training.parameters == job.initial);
}

TEST_CASE("what is told at a trainer's end is of one moment, whoever else trains on") {
  const LedJob job({"asp"}, 2);
  const Squares source;
  PolicyServer server(job.machine, job.context(2), {kAlike.run, kAlike.terms, 3});
  ModeTrainer trainer(kFeatures, 1, kAlike);
  const Tending tending(server, trainer);
  std::uint64_t looks = 0;  // at the evaluation before the end
  ModeTrainOptions options = options_of(1);
  options.evaluate_every = 1e9;  // before, and behind the end
  TrainCallbacks callbacks;
  callbacks.progress = [&](const Evaluated&, double) { looks = server.counters().looks; };
  const ModeTrainResult found = trainer.train(source, job.data.view(), nullptr, job.machine.rule(),
                                              job.context(1), options, callbacks);
  REQUIRE(found.training.evaluations.size() == 2);
  CHECK(found.training.evaluations.back().updates == found.training.updates);
  CHECK(server.counters().looks == looks);
}

TEST_CASE("whoever is let go has no lease, and comes back") {
  const LedJob job({"asp"}, 2);
  Squares source;
  std::atomic<int> gradients{0};
  std::atomic<bool> goes_on{false};
  source.before = [&](const std::atomic<bool>& cancel) {
    if (++gradients > 1) return;
    while (!goes_on && !cancel) std::this_thread::yield();
  };
  PolicyServer server(job.machine, job.context(2), {kAlike.run, kAlike.terms, 3});
  ModeTrainer trainer(kFeatures, 2, kAlike);
  const Tending tending(server, trainer);
  std::jthread lets_go([&] {
    CHECK(comes_true([&] { return server.counters().pushes > 0; }));
    server.quiet([](PolicyService& service) { service.let_go(500, 10); });
    CHECK(server.counters().departures == 0);
    server.quiet([](PolicyService& service) { service.let_go(kAlike.client, 2); });
    CHECK(comes_true([&] { return server.counters().lanes == 2; }));
    goes_on = true;
  });
  const ModeTrainResult found = trainer.train(source, job.data.view(), nullptr, job.machine.rule(),
                                              job.context(2), options_of(2), {});
  CHECK(found.training.reason == StopReason::epochs);
  CHECK(found.counts.applied == kExamples);
  CHECK(server.counters().lanes == 2);
}

TEST_CASE("a trainer that looks ahead is as many workers as it has lanes") {
  for (const auto& [lanes, at_once] : {std::pair<std::size_t, std::size_t>{2, 1}, {6, 2}}) {
    CAPTURE(lanes);
    const LedJob job({"sync"}, static_cast<double>(lanes));
    Squares source;
    const ModeTrainResult threads = train_mode(source, job.data.view(), nullptr, job.machine,
                                               job.context(lanes), options_of(lanes), {});
    std::atomic<std::size_t> within{0}, most{0};
    source.before = [&](const std::atomic<bool>&) {
      const std::size_t now = ++within;
      for (std::size_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
      }
      std::this_thread::yield();
      --within;
    };
    PolicyServer server(job.machine, job.context(lanes), {kAlike.run, kAlike.terms, 3});
    ModeTrainer trainer(kFeatures, lanes, ahead(at_once));
    const Tending tending(server, trainer);
    const ModeTrainResult found =
        trainer.train(source, job.data.view(), nullptr, job.machine.rule(), job.context(lanes),
                      options_of(lanes), {});
    CHECK(found.training.reason == StopReason::epochs);
    CHECK(most <= at_once);
    CHECK(server.counters().lanes == lanes);
    CHECK(found.counts.worker_examples.size() == lanes);
    CHECK(found.training.parameters == threads.training.parameters);
  }
}

TEST_CASE("while a lane computes another is granted its lease, and pushes its gradient") {
  const LedJob job({"asp"}, 2);
  Squares source;
  PolicyServer server(job.machine, job.context(2), {kAlike.run, kAlike.terms, 3});
  std::uint64_t gradients = 0;  // one at a time
  source.before = [&](const std::atomic<bool>&) {
    ++gradients;
    if (gradients == 1) CHECK(comes_true([&] { return server.counters().grants == 2; }));
    if (gradients == 2) CHECK(comes_true([&] { return server.counters().pushes == 1; }));
  };
  ModeTrainer trainer(kFeatures, 2, ahead(1));
  const Tending tending(server, trainer);
  const ModeTrainResult found = trainer.train(source, job.data.view(), nullptr, job.machine.rule(),
                                              job.context(2), options_of(2), {});
  CHECK(gradients == kExamples / kBatch);
  CHECK(found.counts.applied == kExamples);
}

TEST_CASE("local steps of a lease are one turn") {
  constexpr std::size_t kSteps = 2;
  const LedJob job({"local_sgd", {{"h", kSteps}}}, 3);
  Squares source;
  std::vector<std::thread::id> who;  // one at a time
  source.before = [&](const std::atomic<bool>&) { who.push_back(std::this_thread::get_id()); };
  PolicyServer server(job.machine, job.context(3), {kAlike.run, kAlike.terms, 3});
  ModeTrainer trainer(kFeatures, 3, ahead(1));
  const Tending tending(server, trainer);
  trainer.train(source, job.data.view(), nullptr, job.machine.rule(), job.context(3), options_of(3),
                {});
  REQUIRE(who.size() == kSteps * (kExamples / kBatch));
  for (std::size_t i = 0; i < who.size(); i += kSteps) CHECK(who[i] == who[i + 1]);
}

TEST_CASE("whatever ends a run wakes those who wait for their turn") {
  for (const char* const by : {"an exception", "Ctrl-C", "the master"}) {
    CAPTURE(by);
    const std::string why = by;
    const LedJob job({"asp"}, 4);
    Squares source;
    PolicyServer server(job.machine, job.context(4), {kAlike.run, kAlike.terms, 3});
    std::atomic<bool> all_granted{false};
    source.before = [&](const std::atomic<bool>& cancel) {
      CHECK(comes_true([&] { return server.counters().grants == 4; }));
      all_granted = true;
      if (why == "an exception") throw Error("no gradient");
      while (!cancel) std::this_thread::yield();
    };
    ModeTrainer trainer(kFeatures, 4, ahead(1));
    const Tending tending(server, trainer);
    TrainCallbacks callbacks;
    callbacks.interrupted = [&] { return why == "Ctrl-C" && all_granted.exchange(false); };
    const std::jthread master([&] {
      while (why == "the master" && !all_granted) std::this_thread::yield();
      if (why == "the master") trainer.end();
    });
    ModeTrainOptions options = options_of(4);
    options.evaluate_every = 0;
    const auto train = [&] {
      return trainer.train(source, job.data.view(), nullptr, job.machine.rule(), job.context(4),
                           options, callbacks);
    };
    if (why == "an exception") {
      CHECK_THROWS_WITH_AS(train(), "no gradient", Error);
    } else {
      CHECK(train().training.reason == StopReason::interrupted);
    }
    CHECK(server.counters().pushes == 0);
  }
}

TEST_CASE("nobody looks at a server of another run") {
  const LedJob job({"asp"}, 1);
  PolicyServer server(job.machine, job.context(1), {kAlike.run, 7, 3});
  ModeTrainer trainer(kFeatures, 1, {kAlike.run, kAlike.terms, 100, 1, 0.2});
  const Tending tending(server, trainer);
  const Squares source;
  CHECK_THROWS_WITH_AS(trainer.train(source, job.data.view(), nullptr, job.machine.rule(),
                                     job.context(1), options_of(1), {}),
                       doctest::Contains("or be more patient"), Error);
  CHECK(server.counters().looks == 0);
}
