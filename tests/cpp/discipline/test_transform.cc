// A synchroniser's way to theta: it is changed, and nothing else moves.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "leashed/discipline/open.h"
#include "leashed/discipline/registry.h"
#include "leashed/staleness/policy.h"
#include "leashed/update/layout.h"
#include "leashed/update/registry.h"

using namespace leashed;

namespace {

constexpr std::size_t kDimension = 3001;

struct Kind {
  Choice choice;
  std::size_t workers;
};

std::vector<Kind> disciplines() {
  return {{{"sequential"}, 1},
          {{"synchronous"}, 1},
          {{"locked"}, 3},
          {{"hogwild", {{"copy", 1}}}, 3},
          {{"hogwild", {{"copy", 0}}}, 3},
          {{"leashed", {{"persistence", std::numeric_limits<double>::infinity()}}}, 3}};
}

std::vector<float> buffer_of(Discipline& discipline, std::size_t length, std::uint64_t& t) {
  std::vector<float> buffer;
  discipline.with_state([&](const DisciplineState& state) {
    buffer.assign(state.buffer, state.buffer + length);
    t = state.t;
  });
  return buffer;
}

}  // namespace

TEST_CASE("a transformation changes a range of theta, and neither the state nor the version") {
  const std::vector<float> initial(kDimension, 1.0f);
  const auto rule = make_rule({"momentum", {{"lr", 1}, {"momentum", 0.5}}});
  const Layout layout{kDimension, 1};
  for (const Kind& kind : disciplines()) {
    CAPTURE(kind.choice.name);
    DisciplineContext context{initial.data(), kDimension, kind.workers, 1, *rule};
    context.synchronisers = 1;
    const auto discipline = make_discipline(kind.choice, context);
    std::vector<float> gradient(kDimension, -1.0f);
    for (std::size_t worker = 0; worker < kind.workers; ++worker) discipline->read(worker);
    CHECK(discipline->publish(0, gradient.data()).t == 0);
    std::uint64_t before, after;
    std::vector<float> expected = buffer_of(*discipline, layout.length(), before);
    CHECK(before == 1);

    std::vector<int> times(kDimension);
    const auto f = [&](float* values, std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        ++times[i];
        values[i - begin] = 0.25f * values[i - begin] + static_cast<float>(i);
      }
    };
    constexpr std::size_t kBegin = 7, kEnd = 2900;
    discipline->transform(kBegin, kEnd, f);
    for (std::size_t i = 0; i < kDimension; ++i) CHECK(times[i] == (i >= kBegin && i < kEnd));
    for (std::size_t i = kBegin; i < kEnd; ++i) {
      expected[i] = 0.25f * expected[i] + static_cast<float>(i);
    }
    const std::vector<float> found = buffer_of(*discipline, layout.length(), after);
    CHECK(after == before);
    for (std::size_t i = 0; i < layout.length(); ++i) {
      if (i % layout.stride() < kDimension) REQUIRE(found[i] == expected[i]);
    }
    // Whoever read before it is no staler for it.
    if (kind.workers > 1) {
      const Publication late = discipline->publish(1, gradient.data());
      CHECK(late.t == 1);
      CHECK(late.staleness_compute + late.staleness_schedule == 1);
    }
    discipline->transform(5, 5, f);  // nothing
  }
}

TEST_CASE("no update is lost, and no transformation, while both go on") {
  constexpr std::uint64_t kUpdates = 500, kTransforms = 200;
  const std::vector<float> initial(kDimension, 0.0f);
  const auto rule = make_rule({"sgd", {{"lr", 1}}});
  for (const Kind& kind : disciplines()) {
    CAPTURE(kind.choice.name);
    DisciplineContext context{initial.data(), kDimension, kind.workers, 1, *rule};
    context.synchronisers = 2;
    const auto discipline = make_discipline(kind.choice, context);
    std::vector<std::jthread> threads;
    for (std::size_t worker = 0; worker < kind.workers; ++worker) {
      threads.emplace_back([&, worker] {
        std::vector<float> gradient(kDimension);
        for (std::uint64_t i = 0; i < kUpdates; ++i) {
          discipline->read(worker);
          std::fill(gradient.begin(), gradient.end(), -1.0f);
          discipline->publish(worker, gradient.data());
        }
      });
    }
    for (int synchroniser = 0; synchroniser < 2; ++synchroniser) {
      threads.emplace_back([&] {
        for (std::uint64_t i = 0; i < kTransforms; ++i) {
          discipline->transform(0, kDimension,
                                [](float* values, std::size_t begin, std::size_t end) {
                                  for (std::size_t j = 0; j < end - begin; ++j) values[j] += 2;
                                });
        }
      });
    }
    threads.clear();
    discipline->with_snapshot([&](const float* theta, std::uint64_t t) {
      CHECK(t == kUpdates * kind.workers);
      const auto all = static_cast<float>(t + 2 * 2 * kTransforms);
      for (std::size_t i = 0; i < kDimension; ++i) {
        if (kind.choice.name != "hogwild") REQUIRE(theta[i] == all);
        REQUIRE(theta[i] <= all);
        // Under Hogwild a thread that was interrupted within a pass may put a stretch back as far
        // as it was when it read it. What is written last is written on top of that.
        REQUIRE(theta[i] > 0);
        REQUIRE(theta[i] == std::floor(theta[i]));
      }
    });
  }
}

TEST_CASE("the policy is asked for the factor, then told of the staleness, as soon as it counts") {
  class Telling final : public StalenessPolicy {
   public:
    double factor(double) const override {
      order.push_back('f');
      return 0.5;
    }
    void observe(std::uint64_t) const override {
      order.push_back('o');
      if (memory) theta = *memory;
    }
    mutable std::vector<char> order;
    mutable float theta = 0;
    const float* memory = nullptr;
  } policy;
  const std::vector<float> initial(kDimension, 0.0f);
  const auto rule = make_rule({"sgd", {{"lr", 1}}});
  for (const Kind& kind : disciplines()) {
    CAPTURE(kind.choice.name);
    const auto discipline =
        make_discipline(kind.choice, {initial.data(), kDimension, kind.workers, 1, *rule, policy});
    if (kind.workers == 1 && kind.choice.name == "synchronous") {
      CHECK(discipline->proceed(0, true));
    }
    discipline->read(0);
    std::vector<float> gradient(kDimension, -1.0f);
    policy.order.clear();
    policy.memory = kind.choice.name == "hogwild" ? discipline->memory() : nullptr;
    const Publication publication = discipline->publish(0, gradient.data());
    CHECK(publication.factor == 0.5);
    CHECK(policy.order == std::vector<char>{'f', 'o'});
    if (policy.memory) CHECK(policy.theta == 0);  // before the pass
    policy.memory = nullptr;
  }
}

TEST_CASE("another thread reads the version under Sequential while one pushes") {
  const std::vector<float> initial(kDimension, 0.0f);
  const auto rule = make_rule({"sgd", {{"lr", 1}}});
  const auto discipline =
      make_discipline({"sequential"}, {initial.data(), kDimension, 1, 1, *rule});
  Open& open = *discipline->open();
  std::jthread pushes([&] {
    const std::vector<float> gradient(kDimension, -1.0f);
    const GradientPiece whole{gradient.data(), 0, kDimension};
    StoreChoice stores(1, kDimension);
    for (std::uint64_t t = 0; t < 300; ++t) open.push({&whole, 1}, t, stores);
  });
  for (std::uint64_t seen = 0; seen < 300;) {
    const std::uint64_t t = open.hold()->view.t;
    CHECK(t >= seen);
    seen = t;
  }
}
