// What observers are told of steps in virtual time: the same as of threads.
#include <doctest/doctest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "leashed/discipline/registry.h"
#include "leashed/simulation/play_mode.h"
#include "leashed/simulation/simulate.h"
#include "leashed/update/registry.h"

using namespace leashed;

namespace {

// From some call on its loss is no number.
class Ones final : public GradientSource {
 public:
  explicit Ones(int nan_at) : nan_at_(nan_at) { describe({.dimension = 3, .features = 1}); }
  std::unique_ptr<Workspace> make_workspace() const override {
    return std::make_unique<Workspace>();
  }
  float gradient(const float*, const BatchView&, float* gradient, Workspace&,
                 const std::atomic<bool>&) const override {
    std::fill_n(gradient, 3, 1.0f);
    return calls_++ < nan_at_ ? 0.5f : std::numeric_limits<float>::quiet_NaN();
  }
  Evaluation evaluate(const float*, const BatchView& batch, Workspace&) const override {
    return {1.0, 0, batch.size};
  }

 private:
  const int nan_at_;
  mutable int calls_ = 0;
};

class Heard final : public StepObserver {
 public:
  void claimed(const WorkerStep&) override { all.push_back("claimed"); }
  void read(const WorkerStep& step) override {
    CHECK(step.view.theta != nullptr);
    all.push_back("read");
  }
  void computed(const WorkerStep&) override { all.push_back("computed"); }
  void used(const WorkerStep&) override { all.push_back("used"); }
  void published(const WorkerStep&, const Publication&) override { all.push_back("published"); }
  void abandoned(const WorkerStep&, const Publication& what) override {
    CHECK(what.abandoned);
    all.push_back("abandoned");
  }
  std::vector<std::string> all;
};

TrainResult watched(const GradientSource& source, const Choice& choice, StepObserver& observer) {
  const std::vector<float> x(20, 0.0f), initial(source.dimension(), 0.0f);
  const std::vector<std::int32_t> y(20, 0);
  const auto rule = make_rule({"sgd", {{"lr", 1}}});
  const Choice constant{"constant", {{"seconds", 1}}};
  StopRules until;
  until.updates = 10;
  constexpr double kNever = std::numeric_limits<double>::infinity();
  SimulationOptions options{1, 4, 7, until, kNever, constant, constant, constant};
  options.observers = {&observer};
  const DisciplineContext context{initial.data(), source.dimension(), 1, 1, *rule};
  const DatasetView data{x.data(), y.data(), 20, 1};
  if (choice.name == "asp") {
    const Choice mode{"asp", {{"workers", 1}, {"batch", 4}}};
    const Sharding whole = memorywise(source.dimension(), 1);
    return simulate_mode(source, data, nullptr, mode, whole, context, options, {})
        .simulation.training;
  }
  std::vector<std::unique_ptr<Discipline>> replicas;
  replicas.push_back(make_discipline(choice, context));
  return simulate(source, data, nullptr, choice, replicas, context, options, {}).training;
}

}  // namespace

TEST_CASE("a step in virtual time is told from its claim to what became of it") {
  for (const char* name : {"asp", "locked"}) {
    CAPTURE(name);
    Heard listener;
    const TrainResult result = watched(Ones(2), {name}, listener);
    CHECK(result.reason == StopReason::not_finite);
    CHECK(result.gradients == 2);
    const std::vector<std::string> step = {"claimed", "read", "computed", "used", "published"};
    std::vector<std::string> expected = step;
    expected.insert(expected.end(), step.begin(), step.end());
    expected.insert(expected.end(), {"claimed", "read", "abandoned"});
    CHECK(listener.all == expected);
  }
}
