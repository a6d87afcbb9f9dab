// What observers of a training's steps are told, in which order, and who they are by name.
#include <doctest/doctest.h>

#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/discipline/registry.h"
#include "leashed/engine/observers/registry.h"
#include "leashed/engine/trainer.h"
#include "leashed/update/registry.h"

using namespace leashed;

namespace {

constexpr std::size_t kDimension = 4;

// The gradient is (3, 4, 0, 0), from some call on with a loss that is no number.
class Constant : public GradientSource {
 public:
  explicit Constant(std::uint64_t nan_at = ~std::uint64_t{0}) : nan_at_(nan_at) {
    describe({.dimension = kDimension, .features = 1});
  }
  std::unique_ptr<Workspace> make_workspace() const override {
    return std::make_unique<Workspace>();
  }
  float gradient(const float*, const BatchView& batch, float* gradient, Workspace&,
                 const std::atomic<bool>&) const override {
    const float given[kDimension] = {3, 4, 0, 0};
    std::copy_n(given, kDimension, gradient);
    if (batch.logits) std::fill_n(batch.logits, batch.size, 7.0f);
    // Relaxed: counts.
    const bool nan = calls_.fetch_add(1, std::memory_order_relaxed) >= nan_at_;
    return nan ? std::numeric_limits<float>::quiet_NaN() : 0.5f;
  }
  Evaluation evaluate(const float*, const BatchView& batch, Workspace&) const override {
    return {1, 0, batch.size};
  }

 private:
  const std::uint64_t nan_at_;
  mutable std::atomic<std::uint64_t> calls_{0};
};

// Writes down what it is told; of several workers under a lock.
class Listener : public StepObserver {
 public:
  explicit Listener(bool logits = false) : logits_(logits) {}
  bool needs_logits() const override { return logits_; }
  void claimed(const WorkerStep& step) override { heard("claimed", step); }
  void read(const WorkerStep& step) override { heard("read", step); }
  void computed(const WorkerStep& step) override {
    CHECK(step.gradient.size() == kDimension);
    CHECK(step.gradient[1] == 4);
    CHECK(step.loss_sum == 0.5 * static_cast<double>(step.batch->size));
    heard("computed", step);
    const std::lock_guard lock(mutex_);
    saw_logits |= step.batch->logits != nullptr;
  }
  void used(const WorkerStep& step) override { heard("used", step); }
  void published(const WorkerStep& step, const Publication& what) override {
    CHECK(what.published);
    heard("published", step);
  }
  void abandoned(const WorkerStep& step, const Publication& what) override {
    CHECK(what.abandoned);
    heard("abandoned", step);
  }
  void leave(std::size_t) override {
    const std::lock_guard lock(mutex_);
    ++left;
  }
  Found found() const override { return {{"heard", static_cast<double>(all.size())}}; }

  std::vector<std::string> all;  // of all workers, as it came
  std::size_t left = 0;
  bool saw_logits = false;

 private:
  void heard(const char* event, const WorkerStep& step) {
    const std::lock_guard lock(mutex_);
    all.push_back(std::string(event) + " " + std::to_string(step.k));
  }
  const bool logits_;
  std::mutex mutex_;
};

// Throws where it is told of that, all else it lets pass.
class Throwing : public StepObserver {
 public:
  explicit Throwing(std::string at) : at_(std::move(at)) {}
  void claimed(const WorkerStep&) override { hear("claimed"); }
  void read(const WorkerStep&) override { hear("read"); }
  void computed(const WorkerStep&) override { hear("computed"); }
  void used(const WorkerStep&) override { hear("used"); }
  void published(const WorkerStep&, const Publication&) override { hear("published"); }
  void abandoned(const WorkerStep&, const Publication&) override { hear("abandoned"); }
  void leave(std::size_t) override { hear("leave"); }

 private:
  void hear(const char* event) const {
    if (at_ == event) throw Error(at_);
  }
  const std::string at_;
};

TrainResult run(const GradientSource& source, const char* discipline, std::size_t workers,
                std::uint64_t updates, std::vector<StepObserver*> observers) {
  const std::vector<float> x(64, 0.0f), initial(kDimension, 0.0f);
  const std::vector<std::int32_t> y(64, 0);
  const auto rule = make_rule({"sgd", {{"lr", 1}}});
  const DisciplineContext context{initial.data(), kDimension,           workers, 1,
                                  *rule,          no_staleness_policy()};
  Choice choice{discipline};
  if (choice.name == "leashed") choice.settings["persistence"] = 1.0 / 0.0;
  const auto held = make_discipline(choice, context);
  TrainOptions options{workers, 4, 7, {}, std::numeric_limits<double>::infinity()};
  options.until.updates = updates;
  options.observers = std::move(observers);
  return train(source, {x.data(), y.data(), 64, 1}, nullptr, *held, context, options, {});
}

}  // namespace

TEST_CASE("one worker's steps are told in order, the next batch ahead") {
  Listener listener, with_logits(true);
  const TrainResult result = run(Constant(), "sequential", 1, 2, {&listener, &with_logits});
  CHECK(listener.all == std::vector<std::string>{"claimed 0", "claimed 1", "read 0", "computed 0",
                                                 "used 0", "published 0", "claimed 2", "read 1",
                                                 "computed 1", "used 1", "published 1"});
  CHECK(with_logits.all == listener.all);
  CHECK(with_logits.saw_logits);
  CHECK(listener.left == 1);
  CHECK(result.observed == Found{{"heard", 11}});
}

TEST_CASE("a gradient whose loss is no number is abandoned") {
  Listener listener;
  const TrainResult result = run(Constant(1), "locked", 1, 5, {&listener});
  CHECK(result.reason == StopReason::not_finite);
  CHECK(listener.all.back() == "abandoned 1");
  CHECK(result.gradients == 1);
  CHECK(!listener.saw_logits);
}

TEST_CASE("of several workers everything is told once") {
  for (const char* discipline : {"synchronous", "locked", "leashed"}) {
    Listener listener;
    constexpr std::size_t kWorkers = 3, kUpdates = 30;
    const TrainResult result = run(Constant(), discipline, kWorkers, kUpdates, {&listener});
    const auto told = [&](const char* event) {
      return static_cast<std::uint64_t>(std::ranges::count_if(
          listener.all, [&](const std::string& one) { return one.starts_with(event); }));
    };
    CHECK(told("used") == result.gradients);
    CHECK(told("published") == result.gradients);
    CHECK(told("computed") == told("used") + told("abandoned"));
    CHECK(listener.left == kWorkers);
  }
}

TEST_CASE("what an observer throws ends the training and comes out of it; all hear who leaves") {
  for (const char* discipline : {"synchronous", "locked", "leashed"}) {
    for (const char* at :
         {"claimed", "read", "computed", "used", "published", "abandoned", "leave"}) {
      CAPTURE(discipline);
      CAPTURE(at);
      Throwing throwing(at);
      Listener behind;
      const bool nan = std::string(at) == "abandoned";
      CHECK_THROWS_WITH_AS(
          run(Constant(nan ? 4 : ~std::uint64_t{0}), discipline, 2, 20, {&throwing, &behind}), at,
          Error);
      CHECK(behind.left == 2);
    }
  }
}

TEST_CASE("observers are chosen by name, each once, with the settings that it has") {
  const auto observers = make_observers({{"gradient_norms", {}}}, 2);
  const TrainResult result = run(Constant(), "locked", 2, 6, pointers(observers));
  CHECK(result.observed == Found{{"gradient_norm", 5}, {"largest_gradient_norm", 5}});
  CHECK(observer_settings().at("gradient_norms").empty());
  CHECK_THROWS_WITH_AS(make_observers({{"norms", {}}}, 1),
                       "unknown observer 'norms'; choose one of: gradient_norms", Error);
  CHECK_THROWS_WITH_AS(make_observers({{"gradient_norms", {{"bound", 1}}}}, 1),
                       "gradient_norms has no setting 'bound'; leave it out", Error);
  CHECK_THROWS_WITH_AS(make_observers({{"gradient_norms", {}}, {"gradient_norms", {}}}, 1),
                       "gradient_norms is given twice; leave one of the two out", Error);
}
