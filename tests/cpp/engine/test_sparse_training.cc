// Updates in place, by several threads: every one is made, and what they learn is right.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "doctest/doctest.h"
#include "leashed/columns/sparse_linear.h"
#include "leashed/discipline/registry.h"
#include "leashed/engine/trainer.h"
#include "leashed/sparse/ordered_rows.h"
#include "leashed/update/registry.h"

namespace {

constexpr std::size_t kRows = 4000, kFeatures = 600;

// Two classes that a planted model tells apart.
struct Problem {
  std::vector<std::int64_t> offsets = {0};
  std::vector<std::int32_t> columns;
  std::vector<float> values;
  std::vector<std::int32_t> labels;

  Problem() {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    std::vector<float> planted(kFeatures);
    for (float& w : planted) w = normal(random);
    for (std::size_t i = 0; i < kRows; ++i) {
      float margin = 0;
      for (int j = 0; j < 10; ++j) {
        const auto column = static_cast<std::size_t>(random() % (1 + random() % kFeatures));
        columns.push_back(static_cast<std::int32_t>(column));
        values.push_back(1);
        margin += planted[column];
      }
      offsets.push_back(static_cast<std::int64_t>(columns.size()));
      labels.push_back(margin > 0);
    }
  }
};

struct Extra {
  bool spelt_out = false;
  const leashed::Checkpoint* from = nullptr;
  leashed::TrainCallbacks callbacks = {};
  std::vector<leashed::StepObserver*> observers = {};
  std::size_t unused = 0;  // columns more, which no row has
};

leashed::TrainResult train(const leashed::Choice& discipline_choice,
                           const leashed::Choice& rule_choice, std::size_t workers, double l2,
                           const leashed::StopRules& until, const Extra& extra = {}) {
  const Problem problem;
  const std::size_t features = kFeatures + extra.unused;
  const leashed::OrderedRows rows(
      {problem.offsets.data(), problem.columns.data(), problem.values.data()}, kRows, features, 0);
  const std::vector<std::int32_t> labels = rows.shuffled(problem.labels.data());
  const auto source = leashed::SparseLinear(features, 1, "log_loss", l2).bias_first();
  const auto rule = leashed::make_rule(rule_choice, workers);
  REQUIRE(source.takes(*rule));
  std::vector<float> theta(source.dimension());
  std::fill_n(theta.end() - static_cast<std::ptrdiff_t>(extra.unused), extra.unused, 0.5f);
  leashed::DisciplineContext context{theta.data(), source.dimension(), workers, 1, *rule};
  context.sparse = {rows.active() + 1, {}, rows.mean_squares()};
  leashed::TrainOptions options{workers, 4, 0, until, 1e6};
  options.observers = extra.observers;
  if (extra.callbacks.checkpoint) options.checkpoint_every = 1e-4;
  std::optional<leashed::Resumed> resumed;
  if (const leashed::Checkpoint* from = extra.from) {
    resumed.emplace(*from, leashed::Layout{source.dimension()}, context.staleness, context);
    options.from = from->position;
  }
  const auto discipline = leashed::make_discipline(discipline_choice, context);
  REQUIRE(discipline->sparse_runs());
  leashed::SparseRows view = rows.view();
  if (extra.spelt_out) view.values = problem.values.data();
  const leashed::DatasetView data{nullptr, labels.data(), kRows, features, view};
  return leashed::train(source, data, nullptr, *discipline, context, options, extra.callbacks);
}

const leashed::Choice kSgd{"sgd", {{"lr", 0.2}}};
const leashed::Choice kAdagrad{"adagrad",
                               {{"lr", 0.2}, {"eps", 1e-10}, {"initial_accumulator", 0.0}}};

}  // namespace

TEST_CASE("Several threads make exactly the updates asked for and learn") {
  leashed::StopRules until;
  until.updates = 12345;
  for (const double copy : {0.0, 1.0}) {
    for (const leashed::Choice& rule : {kSgd, kAdagrad}) {
      for (const std::size_t workers : {1u, 2u, 4u}) {
        const auto result = train({"hogwild", {{"copy", copy}}}, rule, workers, 0, until);
        CHECK(result.updates == 12345);
        CHECK(result.gradients == 12345);
        CHECK(result.evaluations.back().accuracy > 0.9);
      }
    }
  }
  const auto result = train({"locked"}, kSgd, 3, 0, until);
  CHECK(result.updates == 12345);
  CHECK(result.evaluations.back().accuracy > 0.9);
}

TEST_CASE("Observers hear of runs as they are claimed, and of their parts with their rows") {
  struct Listener final : leashed::StepObserver {
    void claimed(const leashed::WorkerStep& step) override { CHECK(step.batch == nullptr); }
    void read(const leashed::WorkerStep& step) override { CHECK(step.batch == nullptr); }
    void used(const leashed::WorkerStep& step) override {
      CHECK(step.batch->size == 4 * step.count);
      parts += step.count;
    }
    void published(const leashed::WorkerStep& step, const leashed::Publication&) override {
      CHECK(step.batch == nullptr);
      runs += step.count;
    }
    std::uint64_t parts = 0, runs = 0;
  } listener;
  leashed::StopRules until;
  until.updates = 500;
  train({"locked"}, kSgd, 1, 0, until, {.observers = {&listener}});
  CHECK(listener.parts == 500);
  CHECK(listener.runs == 500);
}

TEST_CASE("What an observer of a run throws ends the training, and nobody waits for it") {
  struct Throwing final : leashed::StepObserver {
    explicit Throwing(int at) : at(at) {}
    void claimed(const leashed::WorkerStep&) override { hear(0); }
    void read(const leashed::WorkerStep&) override { hear(1); }
    void used(const leashed::WorkerStep&) override { hear(2); }
    void published(const leashed::WorkerStep&, const leashed::Publication&) override { hear(3); }
    void leave(std::size_t) override { hear(4); }
    void hear(int event) const {
      if (event != at) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the other worker is waiting
      throw std::runtime_error("heard");
    }
    const int at;
  };
  leashed::StopRules until;
  until.updates = 500;
  for (int at = 0; at < 5; ++at) {
    CAPTURE(at);
    for (const char* discipline : {"locked", "hogwild"}) {
      leashed::Choice choice{discipline};
      if (choice.name == "hogwild") choice.settings["copy"] = 1;
      Throwing throwing(at);
      CHECK_THROWS_WITH_AS(train(choice, kSgd, 2, 0, until, {.observers = {&throwing}}), "heard",
                           std::runtime_error);
    }
  }
}

TEST_CASE("Of a run that fails what was made before counts, and where there is none nothing") {
  struct Throwing final : leashed::StepObserver {
    explicit Throwing(std::uint64_t at) : at(at) {}
    bool needs_gradients() const override { return true; }
    void computed(const leashed::WorkerStep& step) override {
      CHECK(step.gradient.size() == kFeatures + 1);
      if (seen++ == at) throw std::runtime_error("heard");
    }
    void published(const leashed::WorkerStep& step, const leashed::Publication&) override {
      made += step.count;
    }
    void abandoned(const leashed::WorkerStep&, const leashed::Publication&) override { ++given_up; }
    const std::uint64_t at;
    std::uint64_t seen = 0, made = 0, given_up = 0;
  };
  leashed::StopRules until;
  until.updates = 500;
  for (const char* discipline : {"locked", "hogwild"}) {
    for (const std::uint64_t at : {0u, 1u, 37u}) {
      CAPTURE(at);
      Throwing throwing(at);
      leashed::Choice choice{discipline};
      if (choice.name == "hogwild") choice.settings["copy"] = 0;
      CHECK_THROWS_WITH_AS(train(choice, kSgd, 1, 0, until, {.observers = {&throwing}}), "heard",
                           std::runtime_error);
      CHECK(throwing.made == at);
      CHECK(throwing.given_up == (at == 0));
    }
  }
}

TEST_CASE("What a gradient is looked at of has the parameters that no copy has") {
  constexpr std::size_t kUnused = 1 << 16;  // columns
  struct Looking final : leashed::StepObserver {
    bool needs_gradients() const override { return true; }
    void computed(const leashed::WorkerStep& step) override {
      const float* const unused = step.view.theta + kFeatures + 1;
      different += std::count(unused, unused + kUnused, 0.5f) != kUnused;
    }
    std::atomic<int> different = 0;
  } looking;
  leashed::StopRules until;
  until.updates = 300;
  for (const double copy : {0.0, 1.0}) {
    train({"hogwild", {{"copy", copy}}}, kAdagrad, 2, 0, until,
          {.observers = {&looking}, .unused = kUnused});
    CHECK(looking.different == 0);
  }
}

TEST_CASE("Adagrad's copies merge what they learn at its weight") {
  leashed::StopRules until;
  until.batches = 3000;  // three epochs
  const auto loss = [&](const leashed::Choice& discipline, std::size_t workers) {
    return train(discipline, kAdagrad, workers, 0, until).evaluations.back().loss;
  };
  std::vector<double> shared(9);
  for (double& found : shared) found = loss({"hogwild", {{"copy", 1}}}, 2);
  std::nth_element(shared.begin(), shared.begin() + 4, shared.end());
  CHECK(shared[4] < 1.1 * loss({"sequential"}, 1));
}

TEST_CASE("Values that are all 1 give the same bits left out and spelt out") {
  leashed::StopRules until;
  until.updates = 500;
  for (const leashed::Choice& rule : {kSgd, kAdagrad}) {
    const auto left_out = train({"sequential", {}}, rule, 1, 0, until);
    CHECK(left_out.parameters ==
          train({"sequential", {}}, rule, 1, 0, until, {.spelt_out = true}).parameters);
  }
}

TEST_CASE("One thread gives the same bits under every discipline") {
  leashed::StopRules until;
  until.batches = 3000;
  for (const double l2 : {0.0, 1e-3}) {
    const auto expected = train({"sequential"}, kSgd, 1, l2, until).parameters;
    CHECK(train({"locked"}, kSgd, 1, l2, until).parameters == expected);
    for (const double copy : {0.0, 1.0}) {
      CHECK(train({"hogwild", {{"copy", copy}}}, kSgd, 1, l2, until).parameters == expected);
    }
  }
}

TEST_CASE("The penalty keeps weights small, whoever holds them, and leaves columns unseen alone") {
  leashed::StopRules until;
  until.batches = 5000;
  const auto norm = [&](const leashed::Choice& discipline, std::size_t workers, double l2) {
    const auto theta = train(discipline, kSgd, workers, l2, until).parameters;
    double squares = 0;
    for (std::size_t i = 1; i < theta.size(); ++i) squares += double{theta[i]} * double{theta[i]};
    return std::sqrt(squares);
  };
  const double free = norm({"sequential"}, 1, 0), held = norm({"sequential"}, 1, 0.01);
  CHECK(held < 0.7 * free);
  for (const double copy : {0.0, 1.0}) {
    const double shared = norm({"hogwild", {{"copy", copy}}}, 2, 0.01);
    CHECK(shared == doctest::Approx(held).epsilon(0.15));
  }
}

TEST_CASE("Cut in two anywhere, one thread's run gives the same bits") {
  leashed::StopRules until;
  leashed::Checkpoint saved;
  leashed::TrainCallbacks callbacks;
  callbacks.checkpoint = [&](leashed::Checkpoint taken) { saved = std::move(taken); };
  for (const double l2 : {0.0, 1e-3}) {
    until.updates = 2500;
    const auto expected = train({"sequential"}, kSgd, 1, l2, until).parameters;
    for (const leashed::Choice& kind :
         {leashed::Choice{"sequential"}, {"locked"}, {"hogwild", {{"copy", 1}}}}) {
      CAPTURE(kind.name);
      for (const std::uint64_t cut : {1u, 63u, 64u, 65u, 1000u, 1001u}) {
        CAPTURE(cut);
        until.updates = cut;
        const auto half = train(kind, kSgd, 1, l2, until, {.callbacks = callbacks});
        CHECK(saved.vectors == half.parameters);
        CHECK(saved.position.updates == cut);
        CHECK(saved.position.batches == cut);
        CHECK(saved.behind.empty() == (l2 == 0));
        until.updates = 2500;
        const auto whole = train(kind, kSgd, 1, l2, until, {.from = &saved});
        CHECK(whole.parameters == expected);
        CHECK(whole.gradients == 2500 - cut);
      }
    }
  }
}

TEST_CASE("Checkpoints are taken while several threads train, and no update is lost after them") {
  leashed::StopRules until;
  for (const leashed::Choice& kind :
       {leashed::Choice{"locked"}, {"hogwild", {{"copy", 0}}}, {"hogwild", {{"copy", 1}}}}) {
    CAPTURE(kind.name);
    std::size_t taken = 0;
    leashed::Checkpoint last;
    leashed::TrainCallbacks callbacks;
    callbacks.interrupted = [&] { return taken > 5; };
    callbacks.checkpoint = [&](leashed::Checkpoint reached) {
      ++taken;
      last = std::move(reached);
    };
    until.updates = leashed::StopRules::kNone;
    train(kind, kSgd, 3, 1e-3, until, {.callbacks = callbacks});
    const std::uint64_t reached = last.position.updates;
    CHECK(last.position.batches == reached);
    until.updates = reached + 31234;
    const auto result = train(kind, kSgd, 2, 1e-3, until, {.from = &last});
    CHECK(result.updates == reached + 31234);
    CHECK(result.gradients == 31234);
    CHECK(result.evaluations.back().accuracy > 0.9);
  }
}
