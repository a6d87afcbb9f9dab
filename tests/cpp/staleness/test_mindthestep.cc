// MindTheStep scaled to the step given; its formula is in tests/test_staleness.py.
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <thread>
#include <vector>

#include "leashed/staleness/registry.h"
#include "leashed/staleness/statistics.h"

using namespace leashed;

namespace {

std::unique_ptr<const StalenessPolicy> scaled(double mean, double momentum) {
  return make_staleness(
      {"mindthestep", {{"mean", mean}, {"momentum", momentum}, {"bound", 5}, {"scaled", 1}}});
}

std::vector<std::uint64_t> staleness_of(double mean, double deviation) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<std::uint64_t> taus;
  for (int i = 0; i < 20000; ++i) {
    taus.push_back(static_cast<std::uint64_t>(std::max(0.0, std::round(normal(random)))));
  }
  return taus;
}

double mean_factor(const StalenessPolicy& policy, const std::vector<std::uint64_t>& taus) {
  double sum = 0;
  for (const std::uint64_t tau : taus) sum += policy.factor(static_cast<double>(tau));
  return sum / static_cast<double>(taus.size());
}

}  // namespace

TEST_CASE("scaled, the mean factor of the staleness seen is 1, bound and all") {
  const double kMeans[][2] = {{0.3, 0.5}, {7, 2}, {15, 6}, {875, 69}, {2090, 106}, {5000, 500}};
  for (const auto& [mean, deviation] : kMeans) {
    for (const double given : {0.0, mean}) {
      for (const double momentum : {1.0, 0.5}) {
        CAPTURE(mean);
        CAPTURE(given);
        CAPTURE(momentum);
        const auto policy = scaled(given, momentum);
        CHECK(policy->factor(0) == 1);  // nothing was seen yet
        CHECK(policy->factor(mean) == 1);
        const std::vector<std::uint64_t> taus = staleness_of(mean, deviation);
        for (const std::uint64_t tau : taus) {
          policy->factor(static_cast<double>(tau));
          policy->observe(tau);
        }
        CHECK(mean_factor(*policy, taus) == doctest::Approx(1).epsilon(0.03));
        for (const std::uint64_t tau : taus) {
          REQUIRE(policy->factor(static_cast<double>(tau)) <= 5);
          REQUIRE(policy->factor(static_cast<double>(tau)) > 0);
        }
      }
    }
  }
}

TEST_CASE("scaled, the factors are those of the formula up to one number") {
  const auto plain =
      make_staleness({"mindthestep", {{"mean", 20}, {"momentum", 1}, {"bound", 5}, {"scaled", 0}}});
  const auto policy = scaled(20, 1);
  for (std::uint64_t tau = 10; tau <= 30; ++tau) policy->observe(tau);
  const double ratio = policy->factor(20) / plain->factor(20);
  CHECK(ratio > 1);
  for (double tau = 18; tau <= 30; ++tau) {
    CHECK(policy->factor(tau) == doctest::Approx(ratio * plain->factor(tau)).epsilon(1e-5));
  }
  CHECK(policy->factor(0) == 5);
}

TEST_CASE(
    "one thread, whose staleness is 0, goes on at the step given, and from a checkpoint too") {
  const auto policy = scaled(0, 1);
  for (int i = 0; i < 100; ++i) {
    CHECK(policy->factor(0) == 1);
    policy->observe(0);
  }
  std::vector<std::uint64_t> numbers;
  policy->statistics()->save(numbers);
  const auto resumed = scaled(0, 1);
  resumed->statistics()->restore(numbers);
  CHECK(resumed->factor(0) == 1);

  const auto given = scaled(3, 1);
  for (std::uint64_t tau = 0; tau < 6; ++tau) given->observe(tau);
  given->statistics()->save(numbers);
  const auto goes_on = scaled(3, 1);
  goes_on->statistics()->restore(numbers);
  for (double tau = 0; tau < 8; ++tau) CHECK(goes_on->factor(tau) == given->factor(tau));
}

TEST_CASE("threads ask and observe at any time, scaled") {
  const auto policy = scaled(0, 1);
  const std::vector<std::uint64_t> taus = staleness_of(300, 20);
  {
    std::vector<std::jthread> threads;
    for (std::size_t thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&, thread] {
        for (std::size_t i = thread; i < taus.size(); i += 3) {
          const double factor = policy->factor(static_cast<double>(taus[i]));
          if (!(factor > 0 && factor <= 5)) FAIL_CHECK(factor);
          policy->observe(taus[i]);
        }
      });
    }
  }
  CHECK(mean_factor(*policy, taus) == doctest::Approx(1).epsilon(0.05));
}
