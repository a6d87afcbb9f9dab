// Many factors at once are those that each staleness has.
#include <doctest/doctest.h>

#include <vector>

#include "leashed/staleness/registry.h"

using namespace leashed;

TEST_CASE("factors of many are the factor of each") {
  const std::vector<Choice> choices = {
      {"none"},
      {"power", {{"k", 1}}},
      {"power", {{"k", 2.5}}},
      {"normalized", {{"mu", 3}, {"k", 2}, {"as_printed", 0}}},
      {"cutoff", {{"iota", 4}}},
      {"fleet", {{"threshold", 6}, {"percentile", 99}}},
      {"mindthestep", {{"mean", 4}, {"momentum", 0.5}, {"bound", 3}, {"scaled", 0}}},
      {"table", {}, {{"values", {1, 0.5, 0.25}}}},
  };
  const std::vector<std::uint32_t> tau = {0, 0, 1, 7, 7, 0, 3, 2000000000, 5, 4};
  for (const Choice& choice : choices) {
    CAPTURE(choice.name);
    const auto policy = make_staleness(choice);
    std::vector<float> factors(tau.size() + 1, 7.0f);
    policy->factors(tau.data(), tau.size(), factors.data());
    for (std::size_t i = 0; i < tau.size(); ++i) {
      CHECK(factors[i] == static_cast<float>(policy->factor(tau[i])));
    }
    CHECK(factors.back() == 7.0f);
  }
}
