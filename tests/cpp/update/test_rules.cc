// Rules by name, and the numbers that they give their passes.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/update/passes.h"
#include "leashed/update/registry.h"
#include "leashed/update/rules.h"

using namespace leashed;

namespace {

// Every rule's own settings.
const std::map<std::string, Choice> kRules = {
    {"sgd", {"sgd"}},
    {"averaged_sgd", {"averaged_sgd", {{"begin", 3}}}},
    {"momentum", {"momentum", {{"momentum", 0.9}}}},
    {"nesterov", {"nesterov", {{"momentum", 0.9}}}},
    {"adagrad", {"adagrad", {{"eps", 1e-10}, {"initial_accumulator", 0.5}}}},
    {"adagrad_printed", {"adagrad_printed", {{"eps", 1e-10}, {"initial_accumulator", 0.5}}}},
    {"rmsprop", {"rmsprop", {{"alpha", 0.9}, {"eps", 1e-8}}}},
    {"centered_rmsprop", {"centered_rmsprop", {{"alpha", 0.9}, {"eps", 1e-8}}}},
    {"adam", {"adam", {{"beta1", 0.9}, {"beta2", 0.99}, {"eps", 1e-8}}}},
    {"amsgrad", {"amsgrad", {{"beta1", 0.9}, {"beta2", 0.99}, {"eps", 1e-8}}}},
    {"ftrl", {"ftrl", {{"l1", 0.1}, {"l2", 0.2}, {"beta", 1}}}},
};

Choice with(Choice choice, const std::string& key, double value) {
  choice.settings[key] = value;
  return choice;
}

}  // namespace

TEST_CASE("these are all the rules there are") {
  CHECK(kRules.size() == Rules::kCount);
  CHECK(make_rule(with(kRules.at("sgd"), "lr", 1))->is(kArithmetic<Sgd>));
  CHECK(make_rule(with(kRules.at("amsgrad"), "lr", 1))->is(kArithmetic<Amsgrad>));
  CHECK(!make_rule(with(kRules.at("amsgrad"), "lr", 1))->is(kArithmetic<Adam>));
}

TEST_CASE("a rule's coefficients hold the learning rate of its schedule, whatever the rule") {
  for (const auto& [name, choice] : kRules) {
    CAPTURE(name);
    Choice scheduled = choice;
    scheduled.parts["lr"] = {"step", {{"lr", 0.5}, {"every", 10}, {"factor", 0.5}}};
    const auto constant = make_rule(with(choice, "lr", 0.3)), halved = make_rule(scheduled);
    for (const std::uint64_t t : {0, 1, 9, 10, 1000}) {
      CHECK(constant->coefficients({t}).lr == 0.3f);
    }
    CHECK(halved->coefficients({9}).lr == 0.5f);
    CHECK(halved->coefficients({10}).lr == 0.25f);
  }
}

TEST_CASE("the mean of iterates begins with the update after so many") {
  const auto rule = make_rule(with(kRules.at("averaged_sgd"), "lr", 1));
  CHECK(rule->coefficients({0}).add1 == 1.0f);
  CHECK(rule->coefficients({3}).add1 == 1.0f);
  CHECK(rule->coefficients({4}).add1 == 0.5f);
  CHECK(rule->coefficients({6}).add1 == 0.25f);
}

TEST_CASE("SWAP over what accumulates nothing is an error") {
  for (const auto& [name, choice] : kRules) {
    CAPTURE(name);
    Choice swapped = with(choice, "lr", 1);
    swapped.parts["swap"] = {"swap", {{"period", 5}, {"decay", 0.5}}};
    if (name.starts_with("ada") || name == "rmsprop" || name == "amsgrad") {
      CHECK(make_rule(swapped)->coefficients({5}).keep == 0.5f);
    } else {
      CHECK_THROWS_WITH_AS(make_rule(swapped), doctest::Contains("accumulates no squares"), Error);
    }
  }
}

TEST_CASE(
    "maximize turns the gradient's sign, and such a rule is not for updates of single floats") {
  const auto rule = make_rule(with(with({"sgd", {{"lr", 0.1}}}, "maximize", 1), "weight_decay", 0));
  CHECK(rule->coefficients({0, 0.5}).scale == -0.5f);
  CHECK(rule->keeps_untouched());
  CHECK(!rule->sparse());
}

TEST_CASE("the first update is not dampened") {
  const auto rule = make_rule(
      {"momentum", {{"lr", 0.1}, {"momentum", 0.9}, {"dampening", 0.25}, {"weight_decay", 0.5}}});
  CHECK(rule->coefficients({0, 0.5}).scale == 0.5f);
  CHECK(rule->coefficients({1, 0.5}).scale == 0.375f);
  CHECK(rule->coefficients({1, 0.5}).coupled == 0.375f);
}

TEST_CASE("moments of two threads make no step that those of one cannot") {
  for (const char* const name : {"adam", "amsgrad"}) {
    CAPTURE(name);
    const auto rule = make_rule(with(kRules.at(name), "lr", 0.01));
    const Coefficients c = rule->coefficients({100});
    const std::size_t states = name == std::string("adam") ? 2 : 3;
    const RulePasses& passes = pass_table()[states == 2 ? kArithmetic<Adam> : kArithmetic<Amsgrad>];
    for (const Mode mode : {Mode::racy, Mode::racy_streamed}) {
      constexpr std::size_t n = 37, stride = 48;
      AlignedArray<float> values(4 * stride), gradient(stride);
      std::fill_n(values.data(), 4 * stride, 0.0f);
      std::fill_n(gradient.data(), stride, 0.0f);
      // One thread has stored m of the first gradient, and not v, when another comes without any.
      std::fill_n(values.data() + stride, n, 0.01f);
      float* const at = values.data();
      for (int update = 0; update < 100; ++update) {
        passes(mode, false, c)(at, at, stride, gradient.data(), 0, n, c);
      }
      for (std::size_t i = 0; i < n; ++i) {
        CHECK(at[i] < 0);
        CHECK(at[i] > -1);
      }
      // Under SWAP v may be any part of what it was: nothing is raised.
      Coefficients swapping = c;
      swapping.swaps = true;
      std::fill_n(values.data() + stride, n, 0.01f);
      std::fill_n(values.data() + 2 * stride, n, 1e-8f);
      passes(mode, false, swapping)(at, at, stride, gradient.data(), 0, n, swapping);
      for (std::size_t i = 0; i < n; ++i) CHECK(at[2 * stride + i] < 1e-8f);
    }
  }
}
