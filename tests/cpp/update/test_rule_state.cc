// A vector with a rule's state, alone and shared by threads.
#include <doctest/doctest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "leashed/update/registry.h"
#include "leashed/update/rule_state.h"

using namespace leashed;

namespace {

Choice adam(double lr) {
  return {"adam", {{"lr", lr}, {"beta1", 0.9}, {"beta2", 0.99}, {"eps", 1e-8}}};
}

std::vector<float> theta_of(const RuleState& state) {
  std::vector<float> theta(state.dimension());
  state.copy(0, theta.data());
  return theta;
}

}  // namespace

TEST_CASE("a piece that misses updates goes on as if there had been none") {
  const std::vector<float> zeros(20), g(20, 0.5f);
  RuleState some(make_rule(adam(0.1)), zeros.data(), 20);
  RuleState all(make_rule(adam(0.1)), zeros.data(), 20);
  for (std::uint64_t t = 0; t < 10; ++t) {  // the second piece every other time
    const RuleState::Piece pieces[] = {{g.data(), 0, 7, t}, {g.data() + 7, 7, 20, t / 2}};
    some.update({pieces, t % 2 ? 2u : 1u});
  }
  for (int t = 0; t < 5; ++t) all.update(g.data());
  const std::vector<float> five = theta_of(all);
  for (int t = 5; t < 10; ++t) all.update(g.data());
  const std::vector<float> ten = theta_of(all), found = theta_of(some);
  for (std::size_t i = 0; i < 20; ++i) CHECK(found[i] == (i < 7 ? ten : five)[i]);
  CHECK(some.t() == 10);
}

TEST_CASE("SWAP decays at a period's end what gets no gradient then too") {
  const std::vector<float> zeros(40), g(40, 1.0f);
  const Choice swap{"swap", {{"period", 3}, {"decay", 0.5}}};
  const Choice rules[] = {
      {"adagrad", {{"lr", 0.1}, {"eps", 1e-10}, {"initial_accumulator", 4}}, {}, {{"swap", swap}}},
      {"amsgrad",
       {{"lr", 0.1}, {"beta1", 0.9}, {"beta2", 0.5}, {"eps", 1e-8}, {"clip_value", 0.5}},
       {},
       {{"swap", swap}}},
  };
  for (const Choice& choice : rules) {
    CAPTURE(choice.name);
    const bool adagrad = choice.name == "adagrad";
    RuleState state(make_rule(choice), zeros.data(), 40);
    const std::size_t first = adagrad ? 1 : 2;  // of the squares; before it is Adam's mean
    std::vector<float> once(40), now(40);
    for (std::uint64_t t = 0; t < 8; ++t) {
      // [5, 33) gets a gradient in the first update alone, and not at t = 3 and t = 6.
      const RuleState::Piece pieces[] = {
          {g.data(), 0, 5, t}, {g.data(), 5, t ? 5ul : 33ul, 0}, {g.data(), 33, 40, t}};
      state.update(pieces);
      for (std::size_t k = 0; k <= state.states(); ++k) {
        CAPTURE(k);
        if (t == 0) continue;
        state.copy(k, now.data());
        const float kept = k < first ? 1 : t < 3 ? 1 : t < 6 ? 0.5f : 0.25f;
        RuleState begin(make_rule(choice), zeros.data(), 40);
        begin.update(g.data());
        begin.copy(k, once.data());
        for (std::size_t i = 5; i < 33; ++i) REQUIRE(now[i] == kept * once[i]);
      }
    }
    std::vector<float> all(40);
    RuleState whole(make_rule(choice), zeros.data(), 40);
    for (int t = 0; t < 8; ++t) whole.update(g.data());
    whole.copy(first, all.data());
    state.copy(first, now.data());
    CHECK(now[4] == all[4]);
    CHECK(now[33] == all[33]);
  }
}

TEST_CASE("pieces that overlap or leave the vector, and a rule with other state, are errors") {
  const std::vector<float> zeros(20);
  RuleState state(make_rule(adam(0.1)), zeros.data(), 20);
  const RuleState::Piece pieces[] = {{zeros.data(), 5, 10, 0}, {zeros.data(), 9, 12, 0}};
  CHECK_THROWS_WITH_AS(state.update(pieces), "pieces must ascend within the parameters", Error);
  const RuleState::Piece beyond{zeros.data(), 15, 21, 0};
  CHECK_THROWS_AS(state.update({&beyond, 1}), Error);
  CHECK_THROWS_WITH_AS(state.set_rule(make_rule({"sgd", {{"lr", 1}}})),
                       "the rule keeps other state", Error);
  CHECK(state.t() == 0);
}

TEST_CASE("threads update, exchange the rule and copy at once") {
  constexpr std::size_t kLength = 300;
  const std::vector<float> zeros(kLength), g(kLength, 1.0f);
  RuleState state(make_rule(adam(0.1)), zeros.data(), kLength);
  std::vector<RuleState::Piece> pieces;  // many, so that the rule is used again and again
  for (std::size_t i = 0; i < kLength; ++i) pieces.push_back({g.data() + i, i, i + 1, 0});
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 300; ++n) state.update(pieces);
    });
    threads.emplace_back([&] {
      for (int n = 0; n < 300; ++n) {
        state.set_rule(make_rule(adam(n % 2 ? 0.1 : 0.2)));
        const std::vector<float> theta = theta_of(state);
        for (const float x : theta) CHECK(x == theta[0]);  // all of an update or nothing
        CHECK(state.t() <= 600);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(state.t() == 600);
}
