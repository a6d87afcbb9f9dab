// Engine: threads that come and go, views that outlive updates, gradients in pieces and sparse
// ones.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <thread>
#include <vector>

#include "leashed/backend/engine.h"
#include "leashed/discipline/registry.h"
#include "leashed/engine/trainer.h"
#include "leashed/model/external.h"
#include "leashed/update/registry.h"

using namespace leashed;

namespace {

constexpr std::size_t kLength = 257;
const std::vector<float> kZeros(kLength, 0.0f), kOnes(kLength, 1.0f);
const GradientPiece kWhole{kOnes.data(), 0, kLength};

std::vector<Choice> disciplines() {
  return {{"locked"},
          {"hogwild", {{"copy", 1}}},
          {"hogwild", {{"copy", 0}}},
          {"leashed", {{"persistence", 1e18}}}};
}

std::unique_ptr<Engine> make(const Choice& discipline, std::size_t workers,
                             std::size_t readers = 16, const std::string& rule = "sgd") {
  return std::make_unique<Engine>(
      kZeros.data(), kLength,
      Engine::Parts{discipline,
                    {rule, {{"lr", 1}, {"momentum", 0}, {"eps", 1}, {"initial_accumulator", 0}}},
                    {"none"},
                    workers,
                    readers});
}

std::vector<float> parameters(Engine& engine) {
  std::vector<float> theta;
  engine.with_state(
      [&](const float* buffer, std::uint64_t) { theta.assign(buffer, buffer + kLength); });
  return theta;
}

}  // namespace

TEST_CASE("a piece that is not finite is named by its parameter, and nothing of any is applied") {
  std::vector<float> values(10, 1.0f);
  values[7] = -std::numeric_limits<float>::infinity();
  const GradientPiece pieces[] = {{kOnes.data(), 0, 100}, {values.data(), 120, 130}};
  for (const Choice& discipline : disciplines()) {
    CAPTURE(discipline.name);
    const auto engine = make(discipline, 1);
    const std::uint64_t t = 0;
    CHECK_THROWS_WITH_AS(engine->push(pieces, &t), doctest::Contains("gradient[127] is -inf; "),
                         Error);
    CHECK(parameters(*engine) == kZeros);
    CHECK(engine->t() == 0);
    // The thread that was refused has not become one of the workers.
    std::jthread([&] { CHECK(engine->push({&kWhole, 1}, &t).published); }).join();
  }
}

TEST_CASE("threads come and go, and every update is counted") {
  for (const Choice& discipline : disciplines()) {
    CAPTURE(discipline.name);
    constexpr std::size_t kThreads = 3, kEach = 300;
    const auto engine = make(discipline, kThreads);
    const bool consistent = discipline.name != "hogwild";
    for (int wave = 0; wave < 2; ++wave) {
      std::vector<std::jthread> threads;
      for (std::size_t id = 0; id < kThreads; ++id) {
        threads.emplace_back([&] {
          std::unique_ptr<Held> kept;
          for (std::size_t i = 0; i < kEach; ++i) {
            auto held = engine->hold();
            if (consistent) {
              const float expected = -static_cast<float>(held->view.t);
              if (!std::all_of(held->view.theta, held->view.theta + kLength,
                               [=](float v) { return v == expected; })) {
                FAIL_CHECK("torn vector");
              }
            }
            if (!engine->push({&kWhole, 1}).published) FAIL_CHECK("dropped");
            kept = std::move(held);
          }
        });
      }
    }
    CHECK(engine->t() == 2 * kThreads * kEach);
    if (consistent) CHECK(parameters(*engine)[5] == -2.0f * kThreads * kEach);
  }
}

TEST_CASE("one thread or one view too many is refused") {
  const auto engine = make({"leashed", {{"persistence", 0}}}, 1, 2);
  const auto first = engine->hold();
  auto second = engine->hold();
  CHECK_THROWS_WITH_AS(engine->hold(), doctest::Contains("too many views"), std::runtime_error);
  second.reset();
  second = engine->hold();
  CHECK(engine->push({&kWhole, 1}).published);
  std::jthread([&] {
    const std::uint64_t t = 0;
    CHECK_THROWS_WITH_AS(engine->push({&kWhole, 1}, &t), doctest::Contains("more workers"),
                         std::runtime_error);
  }).join();
  CHECK(first->view.theta[0] == 0);
  engine->close();
  CHECK_THROWS_AS(engine->push({&kWhole, 1}), std::runtime_error);
}

TEST_CASE("a gradient in pieces changes what they cover and nothing else") {
  for (const Choice& discipline : disciplines()) {
    for (const std::string rule : {"sgd", "momentum"}) {
      CAPTURE(discipline.name);
      const auto engine = make(discipline, 1, 4, rule);
      const std::uint64_t t = 0;
      CHECK(engine->push({&kWhole, 1}, &t).published);
      const std::vector<GradientPiece> pieces{
          {kOnes.data(), 3, 50}, {kOnes.data(), 50, 61}, {kOnes.data(), 200, kLength - 1}};
      CHECK(engine->push(pieces, &t).published);
      const auto theta = parameters(*engine);
      for (std::size_t i = 0; i < kLength; ++i) {
        const bool covered = (i >= 3 && i < 61) || (i >= 200 && i < kLength - 1);
        CHECK(theta[i] == (covered ? -2 : -1));
      }
    }
  }
}

TEST_CASE("sparse updates by many threads touch only what they name") {
  const auto engine = make({"hogwild", {{"copy", 0}}}, 2, 4, "adagrad");
  std::vector<std::jthread> threads;
  for (std::int64_t id = 0; id < 2; ++id) {
    threads.emplace_back([&, id] {
      // Each thread its own parameters, so that nothing is lost.
      const std::vector<std::int64_t> indices{id, 10 + id, 200 + id};
      const std::uint64_t t = 0;
      for (int i = 0; i < 100; ++i) engine->push_sparse({indices.data(), kOnes.data(), 3}, &t);
    });
  }
  threads.clear();
  const auto theta = parameters(*engine);
  for (std::size_t i = 0; i < kLength; ++i) {
    const bool named = i % 200 < 2 || i == 10 || i == 11;
    CHECK((theta[i] != 0) == named);
    if (named) CHECK(theta[i] == theta[0]);
  }
}

namespace {

// ½ |θ − row|², the mean over the batch.
float towards_rows(const float* theta, const float* x, const std::int64_t* rows, const void* y,
                   std::int64_t batch, float* gradient, void* workspace, void* user_data) {
  CHECK(workspace);
  CHECK(user_data);
  CHECK(y);
  float loss = 0;
  for (int j = 0; j < 3; ++j) {
    gradient[j] = 0;
    for (std::int64_t i = 0; i < batch; ++i) {
      const float error = theta[j] - x[rows[i] * 3 + j];
      gradient[j] += error / static_cast<float>(batch);
      loss += error * error / 2 / static_cast<float>(batch);
    }
  }
  return loss;
}

}  // namespace

TEST_CASE("a function from outside trains on several threads") {
  const std::vector<float> x{1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3};
  const std::vector<float> targets(4, 0.0f), start(3, 0.0f);
  int data = 0;
  const ExternalSource source({3, 3, true, {}},
                              {towards_rows, nullptr, &data, nullptr, /*workspace_bytes=*/64});
  const auto rule = make_rule({"sgd", {{"lr", 0.1}}});
  for (const Choice& discipline : disciplines()) {
    CAPTURE(discipline.name);
    const DisciplineContext context{start.data(), 3, 2, 1, *rule};
    const auto made = make_discipline(discipline, context);
    TrainOptions options{2, 2, 0, {}, 0};
    options.until.updates = 200;
    const DatasetView view{x.data(), targets.data(), 4, 3};
    const TrainResult result = train(source, view, nullptr, *made, context, options, {});
    CHECK(result.updates == 200);
    // A tenth too far where a thread slept on a gradient from the start and applied it last.
    for (int j = 0; j < 3; ++j) {
      CHECK(result.parameters[static_cast<std::size_t>(j)] == doctest::Approx(j + 1).epsilon(0.15));
    }
  }
}
