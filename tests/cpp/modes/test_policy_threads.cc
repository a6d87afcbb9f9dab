// Every mode on threads: nothing is lost or applied twice, bounds hold, whatever ends a run wakes
// everybody, and what the server heard, told to another by one thread, gives the same bits.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "all_modes.h"
#include "leashed/base/fault.h"
#include "leashed/data/indexed_batches.h"
#include "leashed/discipline/registry.h"
#include "leashed/engine/trainer.h"
#include "leashed/modes/policy_threads.h"
#include "leashed/server/own_models.h"
#include "leashed/staleness/registry.h"
#include "leashed/update/registry.h"

using namespace leashed;
using namespace leashed::modes;

namespace {

constexpr std::size_t kFeatures = 23, kRows = 96, kBatch = 4;

// Least squares by plain loops: what a gradient is depends on every bit of θ.
class Source : public GradientSource {
 public:
  Source() {
    describe({.dimension = kFeatures, .features = kFeatures, .classes = 0, .classifies = false});
  }
  std::unique_ptr<Workspace> make_workspace() const override {
    return std::make_unique<Workspace>();
  }
  float gradient(const float* theta, const BatchView& batch, float* gradient, Workspace&,
                 const std::atomic<bool>& cancel) const override {
    const std::uint64_t call = calls.fetch_add(1, std::memory_order_relaxed);
    if (call == throw_at) throw std::runtime_error("boom");
    if (call == nan_at) return std::numeric_limits<float>::quiet_NaN();
    while (call >= held_from && !cancel.load(std::memory_order_relaxed)) std::this_thread::yield();
    if (call % 7 == 3) std::this_thread::yield();
    std::fill_n(gradient, kFeatures, 0.0f);
    float loss = 0;
    for (std::size_t row = 0; row < batch.size; ++row) {
      const float* const x = batch.rows[row];
      float residual = -batch.targets.values[row];
      for (std::size_t i = 0; i < kFeatures; ++i) residual += theta[i] * x[i];
      for (std::size_t i = 0; i < kFeatures; ++i) gradient[i] += residual * x[i];
      loss += residual * residual / 2;
    }
    const auto size = static_cast<float>(batch.size);
    for (std::size_t i = 0; i < kFeatures; ++i) gradient[i] /= size;
    return loss / size;
  }
  Evaluation evaluate(const float* theta, const BatchView& batch, Workspace&) const override {
    Evaluation sum{0, 0, batch.size};
    for (std::size_t row = 0; row < batch.size; ++row) {
      float residual = -batch.targets.values[row];
      for (std::size_t i = 0; i < kFeatures; ++i) residual += theta[i] * batch.rows[row][i];
      sum.loss_sum += residual * residual / 2;
    }
    return sum;
  }

  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  mutable std::atomic<std::uint64_t> calls{0};
  std::uint64_t throw_at = kNever, nan_at = kNever, held_from = kNever;
};

struct Data {
  Data() : x(kRows * kFeatures), y(kRows) {
    std::uint32_t state = 1;
    const auto draw = [&state] {
      state = state * 1664525u + 1013904223u;
      return static_cast<float>(state >> 8) / 0x1p23f - 1;
    };
    for (float& value : x) value = draw();
    for (float& value : y) value = draw();
  }
  DatasetView view() const { return {x.data(), Targets(y.data()), kRows, kFeatures}; }
  std::vector<float> x, y;
};

bool peers(const Choice& mode) {
  for (const char* name : {"swarm", "go_sgd", "ad_psgd", "d_psgd", "prague"}) {
    if (mode.name == name) return true;
  }
  return false;
}

const Choice kSgd{"sgd", {{"lr", 0.02}}};
const Choice kAdam{"adam", {{"lr", 0.02}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}}};

struct Heard {
  Event event;
  Time at;
  bool step;  // of event.node, rather than an event
};

class Recorder final : public ModeListener {
 public:
  void heard(const Event& event, Time at) override { all.push_back({event, at, false}); }
  void stepped(Node node) override { all.push_back({{Event::Kind::push, node}, {}, true}); }
  std::vector<Heard> all;
};

struct Setting {
  Choice mode;
  std::size_t workers = 2;
  std::uint64_t examples = 10 * kRows;
  Choice rule = kSgd;
  Choice staleness = {"none"};
  StopRules until = {};
  std::vector<std::pair<double, std::uint32_t>> commands = {};
  std::vector<StepObserver*> observers = {};
};

// What both a training and its replay are made from.
struct Made {
  explicit Made(const Setting& setting)
      : rule(make_rule(setting.rule)), staleness(make_staleness(setting.staleness)) {
    Choice choice = setting.mode;
    choice.settings.insert({{"workers", static_cast<double>(setting.workers)},
                            {"batch", static_cast<double>(kBatch)},
                            {"examples", static_cast<double>(setting.examples)}});
    machine = std::make_unique<ServerPolicy>(make_server_policy(choice));
  }
  DisciplineContext context(std::size_t workers) const {
    return {initial.data(), kFeatures, workers, 1, *rule, *staleness};
  }
  std::vector<float> initial = std::vector<float>(kFeatures, 0.25f);
  std::unique_ptr<const Rule> rule;
  std::unique_ptr<const StalenessPolicy> staleness;
  std::unique_ptr<ServerPolicy> machine;
};

ModeTrainResult run(const Source& source, const Setting& setting, ModeListener* listener = nullptr,
                    const TrainCallbacks& callbacks = {}) {
  const Data data;
  const Made made(setting);
  ModeTrainOptions options{setting.workers,  kBatch,  7, setting.until, 0,
                           setting.commands, listener};
  options.observers = setting.observers;
  return train_mode(source, data.view(), nullptr, *made.machine, made.context(setting.workers),
                    options, callbacks);
}

// Does what was heard once more, by one thread: gradients are computed anew when they are needed.
class Replay final : Sink {
 public:
  explicit Replay(const Setting& setting)
      : made_(setting),
        batches_(data_.view(), kBatch, 7),
        server_(*made_.machine, made_.context(setting.workers)),
        models_(server_, made_.context(setting.workers)),
        players_(setting.workers) {
    for (Player& player : players_) player.sent = AlignedArray<float>(kFeatures);
  }

  void play(const Heard& heard) {
    const Node node = heard.event.node;
    if (heard.step) return step(node);
    if (heard.event.kind != Event::Kind::push) {
      return server_.handle(heard.event, nullptr, heard.at, *this);
    }
    Player& player = players_[node];
    REQUIRE(heard.event.ticket == player.granted.lease.ticket);
    REQUIRE(heard.event.version == player.granted.version);
    while (!server_.rule().steps_own ? player.steps == 0
                                     : server_.holds() && player.steps < steps_of(player)) {
      step(node);
    }
    REQUIRE(player.steps == steps_of(player));
    if (server_.rule().sends == WorkerRule::Sends::model) {
      std::copy_n(models_[node], kFeatures, player.sent.data());
    }
    const Payload payload{&player.sent, player.granted.lease.count};
    player.granted.pulled.release();
    ++pushes[node];
    server_.handle(heard.event, &payload, heard.at, *this);
  }

  std::vector<float> theta() {
    if (!server_.has_global_model()) return {models_.mean(), models_.mean() + kFeatures};
    const ParameterVector::Pin latest = server_.holder().pull();
    return {latest.data(), latest.data() + kFeatures};
  }
  const ModeCounts& counts() const { return server_.counts(); }

  std::vector<std::uint64_t> pushes = std::vector<std::uint64_t>(64);
  std::uint64_t most_ahead = 0;
  std::size_t ends = 0;

 private:
  struct Player {
    Grant granted{};
    std::uint32_t steps = 0;
    std::vector<float> base;  // the own model when the step was begun
    AlignedArray<float> sent;
  };

  std::uint32_t steps_of(const Player& player) const {
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(server_.rule().local_steps, player.granted.lease.count));
  }
  void step(Node node) {
    Player& player = players_[node];
    const modes::Lease& lease = player.granted.lease;
    const std::uint32_t steps = steps_of(player), i = player.steps++;
    const std::uint64_t begin = lease.count * i / steps, end = lease.count * (i + 1) / steps;
    batches_.fill_span(lease.first + begin, end - begin, batch_);
    const bool pulled = server_.rule().model == WorkerRule::Model::pulled;
    source_.gradient(pulled ? player.granted.pulled.data() : player.base.data(), batch_.view,
                     player.sent.data(), *workspace_, never_);
    if (!server_.rule().steps_own) return;
    models_.step(node, player.sent.data());
    player.base.assign(models_[node], models_[node] + kFeatures);
  }

  void grant(Grant grant) override {
    const auto [least, most] =
        std::minmax_element(pushes.begin(), pushes.begin() + static_cast<long>(players_.size()));
    most_ahead = std::max(most_ahead, pushes[grant.node] - *least);
    Player& player = players_[grant.node];
    player.granted = std::move(grant);
    player.steps = 0;
    if (server_.rule().model != WorkerRule::Model::own) return;
    models_.take(player.granted);
    const Node node = player.granted.node;
    player.base.assign(models_[node], models_[node] + kFeatures);
  }
  void wake(Time) override {}
  void meet(std::span<const Node> nodes, Node) override { models_.meet(nodes); }
  void end(Node) override { ++ends; }
  void settled(Node, const Publication&) override {}

  const Data data_;
  const Made made_;
  const Source source_;
  const IndexedBatches batches_;
  const std::unique_ptr<Workspace> workspace_ = source_.make_workspace();
  const std::atomic<bool> never_{false};
  ParameterServer server_;
  OwnModels models_;
  std::vector<Player> players_;
  Batch batch_;
};

void check_same(const ModeCounts& a, const ModeCounts& b) {
  CHECK(a.late == b.late);
  CHECK(a.stale == b.stale);
  CHECK(a.straggler == b.straggler);
  CHECK(a.applied == b.applied);
  CHECK(a.exchanges == b.exchanges);
  CHECK(a.meetings == b.meetings);
  CHECK(a.worker_examples == b.worker_examples);
  CHECK(a.worker_kept == b.worker_kept);
}

}  // namespace

TEST_CASE("every example is pushed once, and applied or counted; and all come to the end") {
  for (const Choice& mode : all_modes()) {
    for (const std::size_t workers : {1, 2, 8}) {
      CAPTURE(mode.name);
      CAPTURE(workers);
      const Setting setting{mode, workers};
      const auto [training, counts] = run(Source(), setting);
      std::uint64_t pushed = 0;
      for (const std::uint64_t examples : counts.worker_examples) pushed += examples;
      CHECK(pushed == setting.examples);
      CHECK(training.reason == StopReason::epochs);
      CHECK(counts.late == 0);
      if (counts.exchanges == 0 && !peers(mode)) {
        CHECK(counts.applied + counts.stale + counts.straggler == setting.examples);
      }
      CHECK(std::isfinite(training.evaluations.back().loss));
      CHECK(training.evaluations.back().loss < training.evaluations.front().loss);
    }
  }
}

TEST_CASE("what the server heard, told once more by one thread, gives the same bits") {
  for (const Choice& mode : all_modes()) {
    for (const Choice& rule : {kSgd, kAdam}) {
      for (const Choice& staleness :
           {Choice{"none"}, Choice{"tail_tau", {{"amplitude", 0.8}, {"warmup", 20}}},
            Choice{"cutoff", {{"iota", 2}}}}) {
        for (const std::size_t workers : {1, 2, 8}) {
          CAPTURE(mode.name);
          CAPTURE(rule.name);
          CAPTURE(staleness.name);
          CAPTURE(workers);
          Setting setting{mode, workers, 5 * kRows, rule, staleness};
          if (mode.name == "switching") setting.commands = {{0, 1}, {0.0005, 0}, {0.001, 1}};
          Recorder recorder;
          const auto [training, counts] = run(Source(), setting, &recorder);
          Replay replay(setting);
          for (const Heard& heard : recorder.all) replay.play(heard);
          check_same(replay.counts(), counts);
          CHECK(replay.theta() == training.parameters);
          CHECK(replay.ends >= workers);  // SHAT says it in its reply, and to the pull after it
          for (std::size_t i = 1; i < recorder.all.size(); ++i) {
            const Heard &before = recorder.all[i - 1], &now = recorder.all[i];
            if (!before.step && !now.step) CHECK(before.at.ns <= now.at.ns);
          }
        }
      }
    }
  }
}

TEST_CASE("SSP and Hop-BS keep their bounds, and Sync is never stale") {
  for (const std::size_t workers : {2, 8}) {
    for (const std::uint64_t s : {0, 1, 3}) {
      for (const Choice& mode : {Choice{"ssp", {{"s", static_cast<double>(s)}}},
                                 Choice{"hop_bs", {{"b1", static_cast<double>(s)}}}}) {
        const Setting setting{mode, workers};
        Recorder recorder;
        run(Source(), setting, &recorder);
        Replay replay(setting);
        for (const Heard& heard : recorder.all) replay.play(heard);
        CHECK(replay.most_ahead <= s);
      }
    }
    const auto [training, counts] = run(Source(), {{"sync"}, workers});
    CHECK(training.staleness.size() == 1);
  }
}

TEST_CASE("one worker has the bits of Sequential") {
  const Data data;
  for (const Choice& rule : {kSgd, kAdam}) {
    const Made made({{"asp"}, 1, 10 * kRows, rule});
    const DisciplineContext context = made.context(1);
    const auto discipline = make_discipline({"sequential"}, context);
    StopRules until;
    until.batches = 10 * kRows / kBatch;
    const Source source;
    const TrainResult alone = train(source, data.view(), nullptr, *discipline, context,
                                    {1, kBatch, 7, until, 0}, TrainCallbacks{});
    for (const Choice& mode :
         {Choice{"sync"}, Choice{"bsp", {{"b2", 1}}}, Choice{"asp"}, Choice{"ssp", {{"s", 0}}},
          Choice{"dssp", {{"lower", 0}, {"upper", 2}}}, Choice{"hop_bs"}, Choice{"gba", {{"m", 1}}},
          Choice{"local_sgd", {{"h", 1}}}, Choice{"shat"}}) {
      CAPTURE(mode.name);
      const auto [training, counts] = run(Source(), {mode, 1, 10 * kRows, rule});
      CHECK(training.gradients == alone.gradients);
      CHECK(training.parameters == alone.parameters);
    }
  }
}

TEST_CASE("a number of updates is made exactly") {
  for (const Choice& mode : all_modes()) {
    for (const std::size_t workers : {1, 8}) {
      CAPTURE(mode.name);
      Setting setting{mode, workers, 0};
      setting.until.updates = 25;
      const auto [training, counts] = run(Source(), setting);
      CHECK(training.reason == StopReason::updates);
      CHECK(training.updates == 25);
    }
  }
}

// Who pulls for the first time when another has met it already must keep that.
TEST_CASE("meetings keep the sum of the models") {
  struct Ones final : Source {
    float gradient(const float*, const BatchView&, float* gradient, Workspace&,
                   const std::atomic<bool>&) const override {
      std::fill_n(gradient, kFeatures, -1.0f);
      return 1;
    }
  };
  for (const Choice& mode : all_modes()) {
    if (!peers(mode)) continue;
    for (int repeat = 0; repeat < 20; ++repeat) {
      CAPTURE(mode.name);
      Setting setting{mode, 8, 40 * kRows};
      setting.rule = {"sgd", {{"lr", 1}}};
      const auto [training, counts] = run(Ones(), setting);
      const double sum = 8 * (training.parameters[0] - 0.25);
      CHECK(sum == doctest::Approx(static_cast<double>(training.updates)).epsilon(1e-4));
    }
  }
}

TEST_CASE("an exception, a NaN or a signal ends the run, also for those who wait") {
  for (const Choice& mode : all_modes()) {
    for (const std::size_t workers : {1, 8}) {
      CAPTURE(mode.name);
      for (const std::uint64_t call : {0, 5, 30}) {
        Source throws;
        throws.throw_at = call;
        CHECK_THROWS_WITH_AS(run(throws, {mode, workers, 0}), "boom", std::runtime_error);
        Source nan;
        nan.nan_at = call;
        CHECK(run(nan, {mode, workers, 0}).training.outcome == "crashed");
      }
      // All that are not parked never come back by themselves.
      Source held;
      held.held_from = 5;
      TrainCallbacks callbacks;
      callbacks.interrupted = [&held] { return held.calls.load() > 5; };
      CHECK(run(held, {mode, workers, 0}, nullptr, callbacks).training.reason ==
            StopReason::interrupted);
      Setting timed{mode, workers, 0};
      timed.until.seconds = 0.002;
      CHECK(run(Source(), timed).training.reason == StopReason::seconds);
    }
  }
}

TEST_CASE("observers hear what becomes of each gradient, and what they throw ends the run") {
  struct Watching final : StepObserver {
    void claimed(const WorkerStep&) override { hear(0); }
    void read(const WorkerStep&) override { hear(1); }
    void used(const WorkerStep&) override { hear(2); }
    void abandoned(const WorkerStep&, const Publication&) override { hear(3); }
    void leave(std::size_t) override { hear(4); }
    void hear(int event) {
      ++heard[event];
      if (event == throws_at) throw std::runtime_error("heard");
    }
    int throws_at = -1;
    std::atomic<std::size_t> heard[5] = {};
  };
  for (const Choice& mode : all_modes()) {
    CAPTURE(mode.name);
    Source nan;
    nan.nan_at = 30;
    Setting setting{mode, 4, 0};
    Watching watching;
    setting.observers = {&watching};
    run(nan, setting);
    CHECK(watching.heard[3] > 0);
    CHECK(watching.heard[0] == watching.heard[1]);
    CHECK(watching.heard[0] == watching.heard[2] + watching.heard[3]);
    CHECK(watching.heard[4] == 4);
    for (int at = 0; at < 5; ++at) {
      CAPTURE(at);
      Source again;
      again.nan_at = at >= 3 ? 30 : Source::kNever;
      Watching throwing, behind;
      throwing.throws_at = at;
      setting.observers = {&throwing, &behind};
      CHECK_THROWS_WITH_AS(run(again, setting), "heard", std::runtime_error);
      CHECK(behind.heard[4] == 4);
    }
  }
}

TEST_CASE("threads that cannot be started are an error, and nobody waits for them") {
  static int threads_left;
  for (const Choice& mode : all_modes()) {
    CAPTURE(mode.name);
    for (const int given : {0, 3}) {
      threads_left = given;
      fault_hook = [](const char* step) {
        if (std::string(step) == "start a thread" && threads_left-- <= 0) {
          throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
        }
      };
      const Source source;
      CHECK_THROWS_AS(run(source, {mode, 4, 0}), Error);
      fault_hook = nullptr;
      CHECK(source.calls == 0);
    }
  }
}

TEST_CASE("a source that cannot begin in a thread ends the run") {
  class Unattached final : public Source {
   public:
    std::shared_ptr<void> attach() const override {
      if (attached.fetch_add(1, std::memory_order_relaxed) == 2) throw std::bad_alloc();
      return nullptr;
    }
    mutable std::atomic<int> attached{0};
  };
  for (const Choice& mode : all_modes()) {
    CAPTURE(mode.name);
    CHECK_THROWS_AS(run(Unattached(), {mode, 3, 0}), std::bad_alloc);
  }
}

TEST_CASE("a mode that is told what it does not know ends the run with an error") {
  Setting setting{{"asp"}, 2, 0};
  setting.commands = {{0.001, 1}};
  CHECK_THROWS_AS(run(Source(), setting), Error);
}

TEST_CASE("a lease that takes too long goes to another, and what comes under it is late") {
  class Slow final : public Source {
   public:
    float gradient(const float* theta, const BatchView& batch, float* gradient, Workspace& w,
                   const std::atomic<bool>& cancel) const override {
      if (slept.fetch_add(1, std::memory_order_relaxed) == 3) {
        std::this_thread::sleep_for(std::chrono::milliseconds(150));
      }
      return Source::gradient(theta, batch, gradient, w, cancel);
    }
    mutable std::atomic<int> slept{0};
  };
  const auto [training, counts] = run(Slow(), {{"sync", {{"term_ns", 3e7}}}, 3, 200 * kRows});
  CHECK(training.reason == StopReason::epochs);
  CHECK(counts.applied == 200 * kRows);
}

TEST_CASE("an update that a lapsed lease brings about counts towards the limit") {
  // The first to begin is held; the other has pushed and waits for it until the term is over, which
  // closes the round.
  class Held final : public Source {
   public:
    float gradient(const float* theta, const BatchView& batch, float* gradient, Workspace& w,
                   const std::atomic<bool>& cancel) const override {
      // Relaxed: a count.
      if (begun.fetch_add(1, std::memory_order_relaxed) == 0) {
        while (!cancel.load(std::memory_order_relaxed)) std::this_thread::yield();
      }
      return Source::gradient(theta, batch, gradient, w, cancel);
    }
    mutable std::atomic<int> begun{0};
  };
  for (Choice mode :
       {Choice{"sync"}, Choice{"switching", {{"gba_batch", 2}}}, Choice{"local_sgd", {{"h", 2}}}}) {
    CAPTURE(mode.name);
    // Where the other stands still for longer than a term, its lease lapses too, and the update is
    // its push's.
    bool woken = false;
    for (double term = 2e7; !woken; term *= 4) {
      mode.settings["term_ns"] = term;
      Setting setting{mode, 2, 0};
      setting.until.updates = 1;
      Recorder recorder;
      const auto [training, counts] = run(Held(), setting, &recorder);
      REQUIRE(training.reason == StopReason::updates);
      REQUIRE(training.updates == 1);
      woken = recorder.all.back().event.kind == Event::Kind::wake;
    }
  }
}

TEST_CASE("workers of Sync make the updates of Synchronous") {
  const Data data;
  const std::size_t workers = 4;
  const Made made({{"sync"}, workers});
  const DisciplineContext context = made.context(workers);
  const auto discipline = make_discipline({"synchronous"}, context);
  StopRules until;
  until.batches = 10 * kRows / kBatch;
  const Source source;
  const TrainResult lockstep = train(source, data.view(), nullptr, *discipline, context,
                                     {workers, kBatch, 7, until, 0}, TrainCallbacks{});
  const auto [training, counts] = run(Source(), {{"sync"}, workers});
  CHECK(training.updates == lockstep.updates);
  for (std::size_t i = 0; i < kFeatures; ++i) {
    CHECK(training.parameters[i] == doctest::Approx(lockstep.parameters[i]).epsilon(1e-5));
  }
}
