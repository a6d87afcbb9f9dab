// Rule and staleness policy under the disciplines: state beside theta, the factor of the vector
// that is replaced, and what is published together.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>
#include <vector>

#include "leashed/discipline/leashed.h"
#include "leashed/discipline/registry.h"
#include "leashed/staleness/registry.h"
#include "leashed/update/registry.h"

using namespace leashed;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const std::vector<Choice> kRules = {
    {"sgd", {{"lr", 0.1}, {"weight_decay", 0.01}}},
    {"momentum", {{"lr", 0.1}, {"momentum", 0.9}}},
    {"nesterov", {{"lr", 0.1}, {"momentum", 0.9}, {"clip_norm", 1}}},
    {"adagrad", {{"lr", 0.1}, {"eps", 1e-10}, {"initial_accumulator", 0.1}}},
    {"rmsprop", {{"lr", 0.1}, {"alpha", 0.9}, {"eps", 1e-8}}},
    {"adam", {{"lr", 0.1}, {"beta1", 0.9}, {"beta2", 0.99}, {"eps", 1e-8}, {"clip_value", 0.3}}},
};

std::vector<Choice> disciplines() {
  return {{"sequential"},
          {"synchronous"},
          {"locked"},
          {"hogwild", {{"copy", 1}}},
          {"hogwild", {{"copy", 0}}},
          {"leashed", {{"persistence", kInfinity}}}};
}

std::vector<float> gradient_at(std::size_t d, std::uint64_t t) {
  std::vector<float> g(d);
  for (std::size_t i = 0; i < d; ++i) {
    g[i] = std::sin(static_cast<float>(i + 1) * static_cast<float>(t + 1));
  }
  return g;
}

std::vector<float> state_of(Discipline& discipline, std::size_t length, std::uint64_t& t) {
  std::vector<float> buffer;
  discipline.with_state([&](const DisciplineState& state) {
    buffer.assign(state.buffer, state.buffer + length);
    t = state.t;
  });
  return buffer;
}

// Calls f, once, the first time that the factor of this staleness is asked for.
class Interfering final : public StalenessPolicy {
 public:
  double factor(double tau) const override {
    asked.push_back(tau);
    if (interfere) std::exchange(interfere, nullptr)();
    return 1 / (tau + 1);
  }
  mutable std::vector<double> asked;
  mutable std::function<void()> interfere;
};

}  // namespace

TEST_CASE("one worker gives the same bits under every discipline, rule by rule") {
  constexpr std::size_t d = 77;
  const auto staleness =
      make_staleness({"stage_aware", {{"lam", 1}}, {}, {{"policy", {"power", {{"k", 1}}}}}});
  for (const Choice& choice : kRules) {
    CAPTURE(choice.name);
    const auto rule = make_rule(choice);
    const std::vector<float> initial = gradient_at(d, 99);
    const Layout layout{d, rule->states()};
    std::vector<float> expected;
    for (const Choice& kind : disciplines()) {
      CAPTURE(kind.name);
      const auto discipline =
          make_discipline(kind, {initial.data(), d, 1, 1, *rule, *staleness, {30, d}});
      for (std::uint64_t t = 0; t < 20; ++t) {
        CHECK(discipline->read(0).t == t);
        std::vector<float> gradient = gradient_at(d, t);
        CHECK(discipline->publish(0, gradient.data()).published);
      }
      std::uint64_t t;
      const std::vector<float> buffer =
          state_of(*discipline, (1 + rule->states()) * layout.stride(), t);
      CHECK(t == 20);
      for (std::size_t i = 0; i < buffer.size(); ++i) {
        if (i % layout.stride() >= d) continue;
        if (expected.empty()) break;
        REQUIRE(buffer[i] == expected[i]);
      }
      expected = buffer;
    }
  }
}

TEST_CASE("a run goes on from a buffer as if it had not ended") {
  constexpr std::size_t d = 40;
  for (const Choice& choice : kRules) {
    CAPTURE(choice.name);
    const auto rule = make_rule(choice);
    const std::vector<float> initial(d, 1.0f);
    const Updater updater(d, *rule);
    for (const Choice& kind : disciplines()) {
      CAPTURE(kind.name);
      const DisciplineContext context{initial.data(), d, 1, 1, *rule};
      const auto whole = make_discipline(kind, context);
      auto part = make_discipline(kind, context);
      std::vector<float> saved;
      for (std::uint64_t t = 0; t < 10; ++t) {
        if (t == 4) {
          std::uint64_t version;
          saved = state_of(*part, updater.layout().length(), version);
          DisciplineContext resumed = context;
          resumed.state = saved.data();
          resumed.t = version;
          part = make_discipline(kind, resumed);
        }
        for (Discipline* discipline : {whole.get(), part.get()}) {
          CHECK(discipline->read(0).t == t);
          std::vector<float> gradient = gradient_at(d, t);
          discipline->publish(0, gradient.data());
        }
      }
      std::uint64_t t;
      std::vector<float> theta = state_of(*whole, d, t);
      CHECK(theta == state_of(*part, d, t));
      CHECK(t == 10);
    }
  }
}

TEST_CASE("Leashed finds the staleness anew on every attempt") {
  const float initial[4] = {};
  const auto rule = make_rule({"sgd", {{"lr", 1}}});
  Interfering policy;
  const Updater updater(DisciplineContext{initial, 4, 2, 0, *rule, policy});
  ParameterVector vector(initial, 4, 2, 0);
  StoreChoice stores(1, 4);
  const float gradient[4] = {-1, -1, -1, -1};
  const GradientPiece whole{gradient, 0, 4};
  // Another thread publishes while this one computes its update, once.
  policy.interfere = [&] {
    const Updater plain(4, *rule);
    const float much[4] = {-100, -100, -100, -100};
    const GradientPiece all{much, 0, 4};
    CHECK(load_and_update(vector, plain, {&all, 1}, 0, 0, stores).published);
  };
  const Publication result = load_and_update(vector, updater, {&whole, 1}, 5, 0, stores);
  CHECK(result.published);
  CHECK(result.tries == 1);
  CHECK(result.staleness_compute == 0);
  CHECK(result.staleness_schedule == 1);
  CHECK(policy.asked == std::vector<double>{0, 1});
  CHECK(vector.pin().data()[0] == 100.5f);  // by the factor 1/2 of staleness 1
}

TEST_CASE("a gradient that is too stale is left out, and nothing is published") {
  const float initial[20] = {};
  const auto rule = make_rule({"momentum", {{"lr", 1}, {"momentum", 0.5}}});
  const auto cutoff = make_staleness({"cutoff", {{"iota", 1}}});
  for (const Choice& kind : disciplines()) {
    if (kind.name == "sequential" || kind.name == "synchronous") continue;
    CAPTURE(kind.name);
    const auto discipline = make_discipline(kind, {initial, 20, 2, 1, *rule, *cutoff});
    discipline->read(1);
    std::vector<float> gradient(20, -1.0f);
    for (int i = 0; i < 2; ++i) {
      discipline->read(0);
      CHECK(discipline->publish(0, gradient.data()).published);
    }
    std::uint64_t before, after;
    // Theta and the state; what is between them is nobody's.
    const auto whole = [&](std::uint64_t& t) {
      std::vector<float> buffer = state_of(*discipline, 52, t);
      buffer.erase(buffer.begin() + 20, buffer.begin() + 32);
      return buffer;
    };
    const std::vector<float> state = whole(before);
    const Publication stale = discipline->publish(1, gradient.data());
    CHECK(stale.excluded);
    CHECK_FALSE(stale.published);
    CHECK(state == whole(after));
    CHECK(before == after);
    // Staleness ι counts.
    discipline->read(1);
    discipline->read(0);
    CHECK(discipline->publish(0, gradient.data()).published);
    const Publication fresh = discipline->publish(1, gradient.data());
    CHECK(fresh.published);
    CHECK(fresh.staleness_compute == 1);
  }
}

TEST_CASE("each variable has a factor of its own, by the norm of its last update") {
  constexpr std::size_t d = 50;
  const float initial[d] = {};
  const auto rule = make_rule({"sgd", {{"lr", 1}}});
  const auto staleness =
      make_staleness({"stage_aware", {{"lam", 0.5}}, {}, {{"policy", {"power", {{"k", 1}}}}}});
  for (const Choice& kind : disciplines()) {
    if (kind.name == "sequential" || kind.name == "synchronous") continue;
    CAPTURE(kind.name);
    const auto discipline = make_discipline(kind, {initial, d, 2, 1, *rule, *staleness, {18, d}});
    discipline->read(1);
    std::vector<float> gradient(d, 0.0f);
    for (std::size_t i = 0; i < 18; ++i) gradient[i] = -2;
    discipline->read(0);
    discipline->publish(0, gradient.data());
    std::fill(gradient.begin(), gradient.end(), -1.0f);
    discipline->publish(1, gradient.data());  // staleness 1

    std::uint64_t t;
    const Layout layout{d, 0, 2};
    const std::vector<float> buffer = state_of(*discipline, layout.length(), t);
    const double norm = 2 * std::sqrt(18.0);
    const auto factor = [](double last) { return 1 / (1 / (1 + std::exp(-0.5 * last)) + 1); };
    CHECK(double{buffer[0]} == doctest::Approx(2 + factor(norm)));
    CHECK(double{buffer[17]} == doctest::Approx(2 + factor(norm)));
    CHECK(double{buffer[18]} == doctest::Approx(factor(0)));
    CHECK(double{buffer[d - 1]} == doctest::Approx(factor(0)));
    CHECK(double{buffer[layout.last_updates()]} == doctest::Approx(std::sqrt(18.0) * factor(norm)));
    CHECK(double{buffer[layout.last_updates() + 1]} ==
          doctest::Approx(std::sqrt(32.0) * factor(0)));
  }
}

namespace {

// Two updates of the first 10 of 40 parameters alone, and then, at t = 2, one of all of them that
// is of staleness 2.
void publish_a_stale_one(Discipline& discipline, float of_the_first, float of_all) {
  discipline.read(1);
  std::vector<float> gradient(40, 0.0f);
  std::fill_n(gradient.begin(), 10, of_the_first);
  for (int i = 0; i < 2; ++i) {
    discipline.read(0);
    discipline.publish(0, gradient.data());
  }
  std::fill(gradient.begin(), gradient.end(), of_all);
  CHECK(discipline.publish(1, gradient.data()).published);
}

}  // namespace

TEST_CASE("a variable whose gradient is left out stays as it is") {
  const float initial[40] = {};
  const auto rule = make_rule({"momentum", {{"lr", 1}, {"momentum", 0.5}}});
  // Staleness 2 counts as 1 where nothing moved, and as nearly 2 where something did.
  const auto staleness =
      make_staleness({"stage_aware", {{"lam", 9}}, {}, {{"policy", {"cutoff", {{"iota", 1}}}}}});
  for (const Choice& kind : disciplines()) {
    if (kind.name == "sequential" || kind.name == "synchronous") continue;
    CAPTURE(kind.name);
    const auto discipline = make_discipline(kind, {initial, 40, 2, 1, *rule, *staleness, {10, 40}});
    publish_a_stale_one(*discipline, -1, -1);
    std::uint64_t t;
    const Layout layout{40, 1, 2};
    const std::vector<float> buffer = state_of(*discipline, layout.length(), t);
    CHECK(t == 3);
    CHECK(buffer[9] == 2.5f);
    CHECK(buffer[10] == 1.0f);
    CHECK(buffer[layout.stride() + 9] == -1.5f);
    CHECK(buffer[layout.stride() + 10] == -1.0f);
    CHECK(double{buffer[layout.last_updates()]} == doctest::Approx(1.5 * std::sqrt(10.0)));
  }
}

TEST_CASE("a variable whose gradient is left out at a period's end decays under SWAP") {
  const float initial[40] = {};
  const auto rule = make_rule({"adagrad",
                               {{"lr", 1}, {"eps", 1e-10}, {"initial_accumulator", 0}},
                               {},
                               {{"swap", {"swap", {{"period", 2}, {"decay", 0.5}}}}}});
  // As above: the first variable's gradient of staleness 2 is left out.
  const auto staleness =
      make_staleness({"stage_aware", {{"lam", 9}}, {}, {{"policy", {"cutoff", {{"iota", 1}}}}}});
  for (const Choice& kind : disciplines()) {
    if (kind.name == "sequential" || kind.name == "synchronous") continue;
    CAPTURE(kind.name);
    const auto discipline = make_discipline(kind, {initial, 40, 2, 1, *rule, *staleness, {10, 40}});
    publish_a_stale_one(*discipline, -2, -3);
    std::uint64_t t;
    const Layout layout{40, 1, 2};
    const std::vector<float> buffer = state_of(*discipline, layout.length(), t);
    CHECK(t == 3);
    CHECK(buffer[layout.stride() + 9] == 4.0f);   // half of 4 + 4
    CHECK(buffer[layout.stride() + 10] == 9.0f);  // half of 0, and 9
    CHECK(double{buffer[9]} == doctest::Approx(1 + 1 / std::sqrt(2.0)));
  }
}

TEST_CASE("what no piece covers at a period's end decays under SWAP") {
  constexpr std::size_t d = 100;
  const std::vector<float> initial(d, 0.0f), ones(d, 1.0f);
  const auto rule = make_rule({"adagrad",
                               {{"lr", 1}, {"eps", 1e-10}, {"initial_accumulator", 3}},
                               {},
                               {{"swap", {"swap", {{"period", 1}, {"decay", 0.5}}}}}});
  const Updater updater(d, *rule);
  const GradientPiece pieces[] = {{ones.data(), 10, 20}, {ones.data(), 50, 90}};
  const DisciplineContext context{initial.data(), d, 1, 0, *rule};
  for (const bool in_place : {true, false}) {
    for (const bool racy : {true, false}) {
      if (racy && !in_place) continue;
      const AlignedArray<float> before = updater.initial(context);
      AlignedArray<float> after = updater.initial(context);
      if (!in_place) std::fill_n(after.data(), updater.layout().length(), 77.0f);
      const Updater::Update update{5, {}, 1};
      if (racy) {
        updater.apply_racy(after.data(), pieces, update);
      } else {
        updater.apply(after.data(), in_place ? after.data() : before.data(), pieces, update);
      }
      for (std::size_t i = 0; i < d; ++i) {
        const bool covered = (i >= 10 && i < 20) || (i >= 50 && i < 90);
        REQUIRE(after.data()[updater.layout().stride() + i] == (covered ? 2.5f : 1.5f));
        REQUIRE((after.data()[i] == 0) == !covered);
      }
    }
  }
}

TEST_CASE("a reader under Leashed sees theta and state of the same update") {
  // μ = 1, η = 1 and gradients of −1: at version t the momentum is −t and theta t (t + 1) / 2.
  constexpr std::size_t d = 3001;
  constexpr std::uint64_t kUpdates = 2000;
  const std::vector<float> initial(d, 0.0f);
  const auto rule = make_rule({"momentum", {{"lr", 1}, {"momentum", 1}}});
  const Updater updater(d, *rule);
  LeashedSgd discipline({initial.data(), d, 3, 1, *rule}, ~std::uint64_t{0});
  std::vector<std::jthread> workers;
  for (std::size_t worker = 0; worker < 3; ++worker) {
    workers.emplace_back([&, worker] {
      std::vector<float> gradient(d, -1.0f);
      for (std::uint64_t i = 0; i < kUpdates; ++i) {
        discipline.read(worker);
        discipline.publish(worker, gradient.data());
      }
    });
  }
  std::uint64_t seen = 0, mixed = 0;
  while (seen < 3 * kUpdates) {
    discipline.with_state([&](const DisciplineState& state) {
      const auto& [buffer, t, behind] = state;
      seen = t;
      const auto x = static_cast<float>(t);
      // Beyond 2^24 the sum is rounded at each step, but all parameters are rounded alike.
      const float theta = t < 5000 ? x * (x + 1) / 2 : buffer[0];
      const float* momentum = buffer + updater.layout().stride();
      for (std::size_t i = 0; i < d; ++i) mixed += buffer[i] != theta || momentum[i] != -x;
    });
  }
  CHECK(mixed == 0);
}

TEST_CASE("Synchronous clips the mean gradient by its norm, whatever the workers") {
  constexpr std::size_t d = 301;
  const std::vector<float> initial(d, 0.0f);
  const auto rule = make_rule({"sgd", {{"lr", 1}, {"clip_norm", 2}}});
  for (const std::size_t workers : {1, 2, 5}) {
    const auto discipline =
        make_discipline({"synchronous"}, {initial.data(), d, workers, 1, *rule});
    std::vector<std::jthread> team;
    for (std::size_t worker = 0; worker < workers; ++worker) {
      team.emplace_back([&, worker] {
        std::vector<float> gradient(d, -static_cast<float>(worker + 1));
        for (int i = 0; i < 3; ++i) {
          discipline->proceed(worker, true);
          discipline->read(worker);
          for (float& g : gradient) g = -static_cast<float>(worker + 1);
          discipline->publish(worker, gradient.data());
        }
      });
    }
    team.clear();
    discipline->with_snapshot([&](const float* theta, std::uint64_t t) {
      CHECK(t == 3);
      for (std::size_t i = 0; i < d; ++i) {
        REQUIRE(double{theta[i]} == doctest::Approx(3 * 2 / std::sqrt(double{d})));
      }
    });
  }
}

TEST_CASE("tables without a factor for fresh gradients, and unknown names, are errors") {
  CHECK_THROWS_AS(make_staleness({"table", {}, {{"values", {0, 1}}}}), Error);
  CHECK_THROWS_WITH_AS(make_staleness({"magic"}),
                       "unknown staleness policy 'magic'; choose one of: cutoff, fleet, "
                       "mindthestep, none, normalized, power, stage_aware, table, tail_tau, "
                       "tau_normalized",
                       Error);
  CHECK_THROWS_WITH_AS(
      make_rule({"sgd", {}, {}, {{"lr", {"magic"}}}}),
      "unknown schedule 'magic'; choose one of: cosine, inverse, scaled, step, warmup", Error);
  CHECK_THROWS_WITH_AS(make_rule({"sgd"}), "sgd needs a value for 'lr'", Error);
}
