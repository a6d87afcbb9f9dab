#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

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

TEST_CASE("under a load that all bear a duration grows with it, a line between its points") {
  const auto durations = make_durations({"constant",
                                         {{"seconds", 1}, {"load_every", 0}},
                                         {{"load", {0, 2, 0}}, {"load_seconds", {0, 10, 40}}}},
                                        0);
  const auto at = [&](double seconds) {
    return static_cast<double>((*durations)(3, 0, std::llround(seconds * 1e9))) * 1e-9;
  };
  CHECK(at(0) == doctest::Approx(1));
  CHECK(at(5) == doctest::Approx(2));
  CHECK(at(10) == doctest::Approx(3));
  CHECK(at(25) == doctest::Approx(2));
  CHECK(at(40) == doctest::Approx(1));
  CHECK(at(85) == doctest::Approx(2));
  CHECK((*durations)(0, 0, std::numeric_limits<std::int64_t>::max()) >= 1000000000);
}

TEST_CASE("under a load that is spread unevenly a machine bears its own, anew after a while") {
  const Choice choice{
      "constant", {{"seconds", 1}, {"load_every", 10}}, {{"load", {0.5}}, {"load_seconds", {0}}}};
  const auto durations = make_durations(choice, 3);
  constexpr std::int64_t kSecond = 1000000000;
  double sum = 0, squares = 0;
  std::uint32_t changes = 0;
  for (std::uint32_t w = 0; w < 500; ++w) {
    for (std::int64_t spell = 0; spell < 100; ++spell) {
      const std::int64_t ns = (*durations)(w, 0, 10 * spell * kSecond);
      const double x = (static_cast<double>(ns) * 1e-9 - 1) / 0.5;
      CHECK(x >= 0);
      sum += x;
      squares += x * x;
      CHECK((*durations)(w, 7, 10 * spell * kSecond) == ns);
      changes += (*durations)(w, 0, (10 * spell + 5) * kSecond) != ns;
    }
  }
  CHECK(sum / 50000 == doctest::Approx(1).epsilon(0.02));
  CHECK(squares / 50000 == doctest::Approx(2).epsilon(0.05));
  // Each is drawn anew at a moment of its own: half of them within any half of ten seconds.
  CHECK(changes > 20000);
  CHECK(changes < 30000);
}

TEST_CASE("a load needs as many values as seconds, which rise from 0") {
  const auto load = [](std::vector<double> loads, std::vector<double> seconds) {
    const Choice choice{"constant",
                        {{"seconds", 1}, {"load_every", 0}},
                        {{"load", std::move(loads)}, {"load_seconds", std::move(seconds)}}};
    return make_durations(choice, 0);
  };
  CHECK_NOTHROW(load({1, 2}, {0, 1}));
  CHECK_THROWS_AS(load({1, 2}, {0}), Error);
  CHECK_THROWS_AS(load({}, {}), Error);
  CHECK_THROWS_AS(load({1, 2}, {0, 0}), Error);
  CHECK_THROWS_AS(load({1, 2}, {1, 2}), Error);
}

TEST_CASE("what has no end takes the longest there is") {
  const auto durations = make_durations({"constant", {{"seconds", 1e300}}}, 0);
  CHECK((*durations)(0, 0) == 1000000000000000000);
}
