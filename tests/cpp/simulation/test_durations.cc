#include <doctest/doctest.h>

#include <cmath>

#include "leashed/simulation/durations.h"

using namespace leashed;

namespace {

struct Moments {
  double mean = 0, deviation = 0;
};

Moments moments_of(const Choice& choice, std::uint32_t workers, std::uint64_t draws) {
  const auto durations = make_durations(choice, 7);
  double sum = 0, squares = 0;
  for (std::uint32_t w = 0; w < workers; ++w) {
    for (std::uint64_t i = 0; i < draws; ++i) {
      const std::int64_t ns = (*durations)(w, i);
      CHECK(ns >= 0);
      const double seconds = static_cast<double>(ns) * 1e-9;
      sum += seconds;
      squares += seconds * seconds;
    }
  }
  const double n = workers * static_cast<double>(draws), mean = sum / n;
  return {mean, std::sqrt(squares / n - mean * mean)};
}

}  // namespace

TEST_CASE("durations have the moments of their distributions") {
  const Moments constant = moments_of({"constant", {{"seconds", 0.25}}}, 2, 10);
  CHECK(constant.mean == doctest::Approx(0.25));
  CHECK(constant.deviation == doctest::Approx(0));
  const Moments normal = moments_of({"normal", {{"mean", 1}, {"deviation", 0.1}}}, 100, 1000);
  CHECK(normal.mean == doctest::Approx(1).epsilon(0.002));
  CHECK(normal.deviation == doctest::Approx(0.1).epsilon(0.02));
  const Moments exponential = moments_of({"exponential", {{"mean", 2}}}, 100, 1000);
  CHECK(exponential.mean == doctest::Approx(2).epsilon(0.02));
  CHECK(exponential.deviation == doctest::Approx(2).epsilon(0.02));
  const Moments tail = moments_of({"heavy_tail", {{"mean", 1}, {"shape", 4}}}, 100, 1000);
  CHECK(tail.mean == doctest::Approx(1).epsilon(0.02));
  CHECK(tail.deviation == doctest::Approx(std::sqrt(2.0)).epsilon(0.1));
}

TEST_CASE("with rates a worker has a pace of its own") {
  const Choice choice{"rates", {{"mean", 1}, {"spread", 0.3}}};
  const auto durations = make_durations(choice, 3);
  double slowest = 0, fastest = 1e9;
  for (std::uint32_t w = 0; w < 50; ++w) {
    double sum = 0;
    for (std::uint64_t i = 0; i < 2000; ++i) sum += static_cast<double>((*durations)(w, i)) * 1e-9;
    slowest = std::max(slowest, sum / 2000);
    fastest = std::min(fastest, sum / 2000);
  }
  CHECK(slowest > 1.3);
  CHECK(fastest < 0.8);
}

TEST_CASE(
    "a duration depends on its worker and its number alone, and a slower worker takes longer") {
  const Choice choice{"exponential", {{"mean", 1}}, {{"slower", {10}}}};
  const auto one = make_durations(choice, 3), other = make_durations(choice, 3);
  const auto even = make_durations({"exponential", {{"mean", 1}}}, 3);
  const std::int64_t first = (*one)(0, 5);
  (*other)(1, 5);
  CHECK((*other)(0, 5) == first);
  CHECK((*one)(0, 6) != first);
  CHECK(static_cast<double>(first) ==
        doctest::Approx(10 * static_cast<double>((*even)(0, 5))).epsilon(1e-6));
  CHECK((*one)(1, 5) == (*even)(1, 5));
  CHECK((*make_durations(choice, 4))(0, 5) != first);
}

TEST_CASE("a trace is gone through again and again, from another place by each worker") {
  const Choice choice{"trace", {}, {{"seconds", {1, 2, 3, 4, 5}}}};
  const auto durations = make_durations(choice, 0);
  bool apart = false;
  for (std::uint32_t w = 0; w < 20; ++w) {
    for (std::uint64_t i = 0; i < 5; ++i) {
      CHECK((*durations)(w, i) == (*durations)(w, i + 5));
      const std::int64_t step = (*durations)(w, i + 1) - (*durations)(w, i);
      CHECK((step == 1000000000 || step == -4000000000));
    }
    apart = apart || (*durations)(w, 0) != (*durations)(0, 0);
  }
  CHECK(apart);
  CHECK_THROWS_AS(make_durations({"trace", {}, {{"seconds", {}}}}, 0), Error);
}

TEST_CASE("what has no end takes the longest there is") {
  const auto durations = make_durations({"constant", {{"seconds", 1e300}}}, 0);
  CHECK((*durations)(0, 0) == 1000000000000000000);
}
