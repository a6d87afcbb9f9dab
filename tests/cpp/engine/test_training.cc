// The worker loop under every discipline, with a gradient source that can tell whether the view it
// was given is consistent: the gradient is −1 everywhere and the step 1, so version t is t
// everywhere.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "leashed/base/fault.h"
#include "leashed/discipline/registry.h"
#include "leashed/engine/trainer.h"
#include "leashed/update/registry.h"

using namespace leashed;

namespace {

constexpr std::size_t kDimension = 301;

class Ledger : public GradientSource {
 public:
  Ledger() { describe({.dimension = kDimension, .features = 1}); }
  std::unique_ptr<Workspace> make_workspace() const override {
    return std::make_unique<Workspace>();
  }
  float gradient(const float* theta, const BatchView&, float* gradient, Workspace&,
                 const std::atomic<bool>& stopped) const override {
    for (std::size_t i = 0; i < kDimension; ++i) {
      if (theta[i] != theta[0]) consistent.store(false, std::memory_order_relaxed);
      gradient[i] = -1;
    }
    const std::uint64_t call = calls.fetch_add(1, std::memory_order_relaxed);
    if (call == throw_at) throw std::runtime_error("boom");
    if (call == slow_at) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    while (call == held_at && !stopped.load(std::memory_order_relaxed)) std::this_thread::yield();
    return theta[0] >= nan_from || call == nan_at ? std::numeric_limits<float>::quiet_NaN() : 1;
  }
  Evaluation evaluate(const float* theta, const BatchView& batch, Workspace&) const override {
    return {static_cast<double>(batch.size) / (1 + theta[0]), 0, batch.size};
  }

  // Relaxed: read after the workers have been joined.
  mutable std::atomic<bool> consistent{true};
  mutable std::atomic<std::uint64_t> calls{0};
  std::uint64_t throw_at = ~std::uint64_t{0}, slow_at = ~std::uint64_t{0};
  std::uint64_t nan_at = ~std::uint64_t{0}, held_at = ~std::uint64_t{0};
  float nan_from = std::numeric_limits<float>::infinity();
};

struct Named {
  Choice discipline;
  bool consistent_reads;
  bool any_number_of_workers;
};

std::vector<Named> disciplines() {
  const double unbounded = std::numeric_limits<double>::infinity();
  std::vector<Named> all = {
      {{"sequential", {}}, true, false},
      {{"synchronous", {}}, true, true},
      {{"locked", {}}, true, true},
      {{"hogwild", {{"copy", 1}}}, false, true},
      {{"leashed", {{"persistence", unbounded}}}, true, true},
      {{"leashed", {{"persistence", 1}}}, true, true},
      {{"leashed", {{"persistence", 0}}}, true, true},
  };
#if !defined(__SANITIZE_THREAD__)
  // Its gradient reads theta while others write it: a deliberate race outside the named kernels.
  all.push_back({{"hogwild", {{"copy", 0}}}, false, true});
#endif
  return all;
}

struct Outcome {
  TrainResult result;
  bool consistent;
};

Outcome run(const Ledger& ledger, const Choice& choice, std::size_t workers, StopRules until,
            const TrainCallbacks& callbacks = {}, double evaluate_every = 0,
            const StalenessPolicy& staleness = no_staleness_policy()) {
  const std::vector<float> x(100, 0.0f), initial(kDimension, 0.0f);
  const std::vector<std::int32_t> y(100, 0);
  const auto rule = make_rule({"sgd", {{"lr", 1}}});
  const DisciplineContext context{initial.data(), kDimension, workers, 1, *rule, staleness};
  const auto discipline = make_discipline(choice, context);
  TrainResult result = train(ledger, {x.data(), y.data(), 100, 1}, nullptr, *discipline, context,
                             {workers, 4, 7, until, evaluate_every}, callbacks);
  return {std::move(result), ledger.consistent.load(std::memory_order_relaxed)};
}

// Another one, whose snapshots take a while to be had, as where a lock is waited for.
class SlowToLookAt : public Discipline {
 public:
  static constexpr auto kWait = std::chrono::milliseconds(20);

  explicit SlowToLookAt(const DisciplineContext& context)
      : inner_(make_discipline({"sequential", {}}, context)) {}
  View read(std::size_t worker) override { return inner_->read(worker); }
  Publication publish(std::size_t worker, float* gradient) override {
    return inner_->publish(worker, gradient);
  }
  void withdraw(std::size_t worker) override { inner_->withdraw(worker); }
  void transform(std::size_t begin, std::size_t end, const Transform& f) override {
    inner_->transform(begin, end, f);
  }
  void look(float* copy, const std::function<void(const float*)>& f) override {
    inner_->look(copy, f);
  }
  void with_snapshot(const std::function<void(const float*, std::uint64_t)>& f) override {
    std::this_thread::sleep_for(kWait);
    inner_->with_snapshot(f);
  }
  std::size_t live_vectors() const override { return inner_->live_vectors(); }

 private:
  const std::unique_ptr<Discipline> inner_;
};

std::uint64_t total(const std::vector<std::uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

}  // namespace

TEST_CASE("every discipline publishes exactly the updates asked for, on consistent views") {
  for (const Named& named : disciplines()) {
    for (const std::size_t workers : {1, 2, 8, 32}) {
      if (workers > 1 && !named.any_number_of_workers) continue;
      CAPTURE(named.discipline.name);
      CAPTURE(workers);
      const Ledger ledger;
      StopRules until;
      until.updates = 600;
      const auto [result, consistent] = run(ledger, named.discipline, workers, until);
      CHECK(result.updates == 600);
      CHECK(result.outcome == "stopped");
      CHECK(result.reason == StopReason::updates);
      CHECK((consistent || !named.consistent_reads));
      const bool lockstep = named.discipline.name == "synchronous";
      CHECK(result.gradients - result.dropped == 600 * (lockstep ? workers : 1));
      CHECK(total(result.staleness) == result.gradients - result.dropped);
      CHECK(total(result.tries) == result.gradients);
      if (named.consistent_reads) {
        for (const float value : result.parameters) REQUIRE(value == 600.0f);
      }
      if (workers == 1 || lockstep) CHECK(result.staleness.size() == 1);
      if (named.discipline.name == "leashed") {
        CHECK(result.peak_vectors <= 3 * workers + 1);
        if (named.discipline["persistence"] == 0) {
          CHECK(result.staleness_schedule.size() == 1);  // τˢ = 0
          CHECK(result.tries.size() <= 2);
        }
      }
    }
  }
}

// With one worker and nothing to look at meanwhile, the caller's thread does the work.
TEST_CASE("the caller's thread trains as a thread of its own does, and ends as soon") {
  class Where final : public Ledger {
   public:
    std::shared_ptr<void> attach() const override {
      thread = std::this_thread::get_id();
      return nullptr;
    }
    mutable std::thread::id thread;
  };
  const double never = std::numeric_limits<double>::infinity();
  for (const Named& named : disciplines()) {
    CAPTURE(named.discipline.name);
    const Where own, caller;
    StopRules until;
    until.batches = 600;
    const TrainResult expected = run(own, named.discipline, 1, until).result;
    const TrainResult result = run(caller, named.discipline, 1, until, {}, never).result;
    CHECK(own.thread != std::this_thread::get_id());
    CHECK(caller.thread == std::this_thread::get_id());
    CHECK(result.parameters == expected.parameters);
    CHECK(result.updates == 600);
    CHECK(result.reason == StopReason::epochs);
    CHECK(total(result.staleness) == 600);
    CHECK(result.running_seconds > 0);

    until.batches = StopRules::kNone;
    until.seconds = 0.05;
    CHECK(run(Ledger(), named.discipline, 1, until, {}, never).result.reason ==
          StopReason::seconds);

    TrainCallbacks callbacks;
    int looks = 0;
    callbacks.interrupted = [&looks] { return ++looks > 2; };
    const TrainResult ended = run(Ledger(), named.discipline, 1, {}, callbacks, never).result;
    CHECK(ended.reason == StopReason::interrupted);
    CHECK(ended.parameters[0] == static_cast<float>(ended.updates));
    callbacks.interrupted = []() -> bool { throw std::runtime_error("signal"); };
    CHECK_THROWS_WITH_AS(run(Ledger(), named.discipline, 1, {}, callbacks, never), "signal",
                         std::runtime_error);

    Ledger throws;
    throws.throw_at = 40;
    CHECK_THROWS_WITH_AS(run(throws, named.discipline, 1, {}, {}, never), "boom",
                         std::runtime_error);
  }
}

TEST_CASE("a number of batches is drawn exactly") {
  for (const Named& named : disciplines()) {
    CAPTURE(named.discipline.name);
    const std::size_t workers = named.any_number_of_workers ? 4 : 1;
    const Ledger ledger;
    StopRules until;
    until.batches = 50;
    const TrainResult result = run(ledger, named.discipline, workers, until).result;
    // In lockstep whole steps: 13 of 4.
    CHECK(result.gradients == (named.discipline.name == "synchronous" ? 52 : 50));
    CHECK(result.reason == StopReason::epochs);
  }
}

TEST_CASE("an exception in a gradient stops the run and comes out of train") {
  for (const Named& named : disciplines()) {
    CAPTURE(named.discipline.name);
    Ledger ledger;
    ledger.throw_at = 40;
    CHECK_THROWS_WITH_AS(
        run(ledger, named.discipline, named.any_number_of_workers ? 4 : 1, StopRules{}), "boom",
        std::runtime_error);
  }
}

TEST_CASE("a worker that ends early, out of memory, ends the run: nobody waits for it") {
  // The last worker cannot even begin.
  class Unattached final : public Ledger {
   public:
    std::shared_ptr<void> attach() const override {
      if (attached.fetch_add(1, std::memory_order_relaxed) == 2) throw std::bad_alloc();
      return nullptr;
    }
    mutable std::atomic<int> attached{0};
  };
  // One of them cannot sample its next batch.
  static std::atomic<int> samples;
  const auto fail_at = [](const char* step) {
    if (std::string_view(step) == "sample" && samples.fetch_sub(1, std::memory_order_relaxed) == 0)
      throw std::bad_alloc();
  };
  for (const Named& named : disciplines()) {
    if (!named.any_number_of_workers) continue;
    CAPTURE(named.discipline.name);
    CHECK_THROWS_AS(run(Unattached(), named.discipline, 3, StopRules{}), std::bad_alloc);
    for (const int sample : {0, 2, 3, 50, 51}) {
      CAPTURE(sample);
      samples.store(sample, std::memory_order_relaxed);
      fault_hook = fail_at;
      CHECK_THROWS_AS(run(Ledger(), named.discipline, 3, StopRules{}), std::bad_alloc);
      fault_hook = nullptr;
    }
  }
}

TEST_CASE("an exception in publish stops the run and comes out of train") {
  class OutOfMemory final : public Discipline {
   public:
    View read(std::size_t) override { return {theta.data(), 0}; }
    Publication publish(std::size_t, float*) override { throw std::bad_alloc(); }
    void withdraw(std::size_t) override {}
    void transform(std::size_t, std::size_t, const Transform&) override {}
    void look(float*, const std::function<void(const float*)>&) override {}
    void with_snapshot(const std::function<void(const float*, std::uint64_t)>& f) override {
      f(theta.data(), 0);
    }
    std::size_t live_vectors() const override { return 1; }
    std::vector<float> theta = std::vector<float>(kDimension);
  } discipline;
  const Ledger ledger;
  const std::vector<float> x(100, 0.0f);
  const std::vector<std::int32_t> y(100, 0);
  const auto rule = make_rule({"sgd", {{"lr", 1}}});
  const DisciplineContext context{discipline.theta.data(), kDimension, 4, 1, *rule};
  CHECK_THROWS_AS(train(ledger, {x.data(), y.data(), 100, 1}, nullptr, discipline, context,
                        {4, 4, 7, {}, 0}, {}),
                  std::bad_alloc);
}

TEST_CASE("threads that cannot be started are an error, and nobody waits for them") {
  static int threads_left;
  for (const Named& named : disciplines()) {
    CAPTURE(named.discipline.name);
    const int workers = named.any_number_of_workers ? 4 : 1;
    for (int given = 0; given < workers; ++given) {
      threads_left = given;
      fault_hook = [](const char* step) {
        if (std::string(step) == "start a thread" && threads_left-- <= 0) {
          throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
        }
      };
      const Ledger ledger;
      const std::string beginning = "threads is " + std::to_string(workers) + ", more than the sys";
      try {
        run(ledger, named.discipline, static_cast<std::size_t>(workers), StopRules{});
        FAIL("it ran");
      } catch (const Error& error) {
        CHECK(std::string(error.what()).starts_with(beginning));
      }
      fault_hook = nullptr;
      CHECK(ledger.calls == 0);
    }
  }
}

TEST_CASE("NaN is a crash, whichever rule was set") {
  for (const Named& named : disciplines()) {
    CAPTURE(named.discipline.name);
    Ledger ledger;
    ledger.nan_from = 30;
    const TrainResult result =
        run(ledger, named.discipline, named.any_number_of_workers ? 4 : 1, StopRules{}).result;
    CHECK(result.outcome == "crashed");
    CHECK(result.reason == StopReason::not_finite);
    CHECK(result.updates >= 30);
  }
}

TEST_CASE("NaN is a crash, also in the last gradient of a run that ends by a count") {
  for (const Named& named : disciplines()) {
    if (!named.any_number_of_workers || named.discipline.name == "synchronous") continue;
    CAPTURE(named.discipline.name);
    Ledger ledger;
    ledger.slow_at = ledger.nan_at = 0;  // the other worker makes its update and finds no more
    StopRules until;
    until.updates = 2;
    int saved = 0;
    TrainCallbacks callbacks;
    callbacks.checkpoint = [&saved](const Checkpoint&) { ++saved; };
    const TrainResult result = run(ledger, named.discipline, 2, until, callbacks).result;
    CHECK(result.updates < 2);
    CHECK(result.outcome == "crashed");
    CHECK(result.reason == StopReason::not_finite);
    CHECK(saved == 0);
  }
}

TEST_CASE("a loss rule gives converged, or unfinished where the run ends without it") {
  const Choice leashed{"leashed", {{"persistence", 1}}};
  const Ledger ledger;
  StopRules until;
  until.loss_fraction = 0.01;
  TrainResult result = run(ledger, leashed, 2, until).result;
  CHECK(result.outcome == "converged");
  CHECK(result.reason == StopReason::loss_fraction);
  CHECK(result.updates >= 99);
  // In order of time; once at or below the loss asked for, this run stays there.
  const auto above = [&](const Evaluated& e) {
    return e.loss > 0.01 * result.evaluations.front().loss;
  };
  CHECK(std::is_partitioned(result.evaluations.begin(), result.evaluations.end(), above));
  CHECK(
      std::is_sorted(result.evaluations.begin(), result.evaluations.end(),
                     [](const Evaluated& a, const Evaluated& b) { return a.updates < b.updates; }));

  until.updates = 20;
  result = run(ledger, leashed, 2, until).result;
  CHECK(result.outcome == "unfinished");
  CHECK(result.reason == StopReason::updates);
}

TEST_CASE("time and interruption end a run that has no other end") {
  for (const Named& named : disciplines()) {
    CAPTURE(named.discipline.name);
    const std::size_t workers = named.any_number_of_workers ? 3 : 1;
    const Ledger ledger;
    StopRules until;
    until.seconds = 0.05;
    const TrainResult timed = run(ledger, named.discipline, workers, until).result;
    CHECK(timed.reason == StopReason::seconds);
    CHECK(total(timed.staleness) + timed.dropped == timed.gradients);
    if (named.discipline.name != "leashed") CHECK(timed.dropped == 0);

    int asked = 0;
    TrainCallbacks callbacks;
    callbacks.interrupted = [&asked] { return ++asked > 3; };
    const TrainResult result =
        run(ledger, named.discipline, workers, StopRules{}, callbacks).result;
    CHECK(result.reason == StopReason::interrupted);
    CHECK(result.outcome == "stopped");
  }
}

TEST_CASE("a run that ends by a count has reached it, and one that a time limit cut says so") {
  for (const Named& named : disciplines()) {
    if (!named.any_number_of_workers || named.discipline.name == "synchronous") continue;
    CAPTURE(named.discipline.name);
    Ledger ledger;
    ledger.slow_at = 0;  // the other worker makes its update and finds no more to make
    StopRules until;
    until.updates = 2;
    TrainResult result = run(ledger, named.discipline, 2, until).result;
    CHECK(result.updates == 2);
    CHECK(result.reason == StopReason::updates);

    ledger.slow_at = ~std::uint64_t{0};
    ledger.held_at = 0;  // until the time is over: one update is all that the other worker can make
    until.seconds = 0.05;
    ledger.calls = 0;
    result = run(ledger, named.discipline, 2, until).result;
    CHECK(result.updates < 2);
    CHECK(result.reason == StopReason::seconds);

    until.updates = StopRules::kNone;
    until.batches = 2;
    ledger.calls = 0;
    result = run(ledger, named.discipline, 2, until).result;
    CHECK(result.gradients < 2);
    CHECK(result.reason == StopReason::seconds);
  }
}

TEST_CASE("as many updates are made as there are batches for, whoever claims the last batch") {
  for (const Named& named : disciplines()) {
    if (!named.any_number_of_workers || named.discipline.name == "synchronous") continue;
    CAPTURE(named.discipline.name);
    Ledger ledger;
    ledger.slow_at = 0;  // by then that worker may have claimed both
    StopRules until;
    until.updates = until.batches = 2;
    const TrainResult result = run(ledger, named.discipline, 2, until).result;
    CHECK(result.gradients == 2);
    CHECK(result.updates + result.dropped == 2);
  }
}

TEST_CASE("a run that no batch is left for ends by their number, whoever ended first") {
  // Lets one update through.
  struct One final : StalenessPolicy {
    double factor(double) const override { return seen ? 0 : 1; }
    bool excludes() const override { return true; }
    void observe(std::uint64_t) const override { seen = true; }
    mutable std::atomic<bool> seen{false};
  };
  for (const Named& named : disciplines()) {
    if (!named.any_number_of_workers || named.discipline.name == "synchronous") continue;
    CAPTURE(named.discipline.name);
    Ledger ledger;
    ledger.slow_at = 0;  // the other worker makes its update and finds no more to make
    StopRules until;
    until.updates = 2;
    until.batches = 8;
    const One policy;
    const TrainResult result = run(ledger, named.discipline, 2, until, {}, 0, policy).result;
    CHECK(result.updates == 1);
    CHECK(result.excluded > 0);
    CHECK(result.reason == StopReason::epochs);
    CHECK(result.outcome == "stopped");
  }
}

TEST_CASE("a moment is that at which the parameters were seen, not that of the wish to see them") {
  const Ledger ledger;
  const std::vector<float> x(100, 0.0f), initial(kDimension, 0.0f);
  const std::vector<std::int32_t> y(100, 0);
  const auto rule = make_rule({"sgd", {{"lr", 1}}});
  const DisciplineContext context{initial.data(), kDimension, 1, 1, *rule, no_staleness_policy()};
  SlowToLookAt discipline(context);
  StopRules until;
  until.loss_fraction = 1e-4;
  const TrainResult result = train(ledger, {x.data(), y.data(), 100, 1}, nullptr, discipline,
                                   context, {1, 4, 7, until, 0}, {});
  REQUIRE(result.evaluations.size() >= 3);
  const double wait = std::chrono::duration<double>(SlowToLookAt::kWait).count();
  for (std::size_t i = 1; i + 1 < result.evaluations.size(); ++i) {  // the last: after the clock
    CHECK(result.evaluations[i].seconds >= wait * static_cast<double>(i));
  }
}

TEST_CASE("an exception of the progress callback stops the run and comes out of train") {
  const Ledger ledger;
  TrainCallbacks callbacks;
  callbacks.progress = [](const Evaluated& now, double) {
    if (now.seconds > 0) throw std::runtime_error("enough");
  };
  CHECK_THROWS_WITH_AS(run(ledger, {"hogwild", {{"copy", 1}}}, 3, StopRules{}, callbacks), "enough",
                       std::runtime_error);
}

TEST_CASE("what the registries do not know is an error that lists what they do") {
  const Ledger ledger;
  CHECK_THROWS_WITH_AS(run(ledger, {"magic", {}}, 1, StopRules{}),
                       "unknown discipline 'magic'; choose one of: hogwild, leashed, locked, "
                       "sequential, synchronous",
                       Error);
  CHECK_THROWS_WITH_AS(make_rule({"magic", {}}),
                       doctest::Contains("unknown rule 'magic'; choose one of: adagrad, "), Error);
}

TEST_CASE("where losses of passes are recorded, a pass is each row once, whatever the batch size") {
  class Rows final : public Ledger {
   public:
    float gradient(const float*, const BatchView& batch, float* gradient, Workspace&,
                   const std::atomic<bool>&) const override {
      std::fill_n(gradient, kDimension, -1.0f);
      float sum = 0;
      for (std::size_t i = 0; i < batch.size; ++i) sum += batch.rows[i][0];
      // What is to be fetched is there: the pointers of a smaller batch end before.
      if (batch.next_rows) {
        for (std::size_t i = 0; i < batch.size; ++i) fetched += batch.next_rows[i][0] >= 0;
      }
      return sum / static_cast<float>(batch.size);
    }
    mutable std::size_t fetched = 0;
  };
  std::vector<float> x(100);
  std::iota(x.begin(), x.end(), 0.0f);
  const std::vector<float> initial(kDimension, 0.0f);
  const std::vector<std::int32_t> y(100, 0);
  const auto rule = make_rule({"sgd", {{"lr", 1}}});
  const DisciplineContext context{initial.data(), kDimension, 1, 1, *rule, no_staleness_policy()};
  for (const std::size_t batch : {1, 3, 7, 64, 99, 100}) {
    CAPTURE(batch);
    const Rows rows;
    const auto discipline = make_discipline({"sequential", {}}, context);
    StopRules until;
    until.batches = 5 * ((100 + batch - 1) / batch);
    TrainOptions options{1, batch, 7, until, std::numeric_limits<double>::infinity()};
    options.recorded_passes = 5;
    const TrainResult result =
        train(rows, {x.data(), y.data(), 100, 1}, nullptr, *discipline, context, options, {});
    REQUIRE(result.passes.size() == 5);
    CHECK(result.updates == until.batches);
    for (const PassLoss& pass : result.passes) {
      CHECK(pass.rows == 100);
      CHECK(pass.sum == doctest::Approx(99 * 100 / 2).epsilon(1e-6));
    }
  }
}
