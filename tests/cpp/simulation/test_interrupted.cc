// Ctrl-C in virtual time: it ends the gradient under way, as in training by threads.
#include <doctest/doctest.h>

#include <chrono>
#include <limits>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "leashed/discipline/registry.h"
#include "leashed/simulation/play_mode.h"
#include "leashed/simulation/simulate.h"
#include "leashed/update/registry.h"

using namespace leashed;

namespace {

// Whose gradient ends when it is told to, and never else.
class Endless : public GradientSource {
 public:
  Endless() { describe({.dimension = 3, .features = 1}); }
  std::unique_ptr<Workspace> make_workspace() const override {
    return std::make_unique<Workspace>();
  }
  float gradient(const float*, const BatchView&, float*, Workspace&,
                 const std::atomic<bool>& cancel) const override {
    while (!cancel.load(std::memory_order_relaxed)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return std::numeric_limits<float>::quiet_NaN();
  }
  Evaluation evaluate(const float*, const BatchView& batch, Workspace&) const override {
    return {1.0, 0, batch.size};
  }
};

class Failing final : public Endless {
 public:
  float gradient(const float*, const BatchView&, float*, Workspace&,
                 const std::atomic<bool>&) const override {
    throw std::runtime_error("boom");
  }
};

TrainResult play(const GradientSource& source, const Choice& choice,
                 const TrainCallbacks& callbacks) {
  const std::vector<float> x(20, 0.0f), initial(source.dimension(), 0.0f);
  const std::vector<std::int32_t> y(20, 0);
  const auto rule = make_rule({"sgd", {{"lr", 1}}});
  const Choice constant{"constant", {{"seconds", 1}}};
  StopRules until;
  until.updates = 10;
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const SimulationOptions options{2, 4, 7, until, kNever, constant, constant, constant};
  const DisciplineContext context{initial.data(), source.dimension(), 2, 1, *rule};
  const DatasetView data{x.data(), y.data(), 20, 1};
  if (choice.name == "asp") {
    const Choice mode{"asp", {{"workers", 2}, {"batch", 4}}};
    const Sharding whole = memorywise(source.dimension(), 1);
    return simulate_mode(source, data, nullptr, mode, whole, context, options, callbacks)
        .simulation.training;
  }
  std::vector<std::unique_ptr<Discipline>> replicas;
  replicas.push_back(make_discipline(choice, context));
  return simulate(source, data, nullptr, choice, replicas, context, options, callbacks).training;
}

const std::vector<Choice> kDisciplines = {
    {"asp"},  // a mode
    {"locked"},
    {"leashed", {{"persistence", std::numeric_limits<double>::infinity()}}},
    {"hogwild", {{"copy", 1}}}};

}  // namespace

TEST_CASE("an interruption ends the gradient under way") {
  for (const Choice& choice : kDisciplines) {
    CAPTURE(choice.name);
    int looks = 0;
    const TrainResult result = play(Endless(), choice, {[&] { return ++looks > 3; }, {}, {}});
    CHECK(result.reason == StopReason::interrupted);
    CHECK(result.updates == 0);
  }
}

TEST_CASE("what a look at signals throws, or a gradient, comes out of a simulation") {
  for (const Choice& choice : kDisciplines) {
    CAPTURE(choice.name);
    int looks = 0;
    const auto throws = [&]() -> bool {
      if (++looks > 3) throw std::logic_error("handler");
      return false;
    };
    CHECK_THROWS_AS(play(Endless(), choice, {throws, {}, {}}), std::logic_error);
    CHECK_THROWS_AS(play(Failing(), choice, {[] { return false; }, {}, {}}), std::runtime_error);
  }
}
