// Clicks from a seed: Zipf's law, and rows that depend on nothing but their number.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "leashed/base/philox.h"
#include "leashed/data/clicks.h"
#include "leashed/data/zipf.h"

using namespace leashed;

namespace {

struct Rows {
  Rows(std::size_t n, std::size_t features)
      : x(n * ClickGenerator::kNumbers), ids(n * features), labels(n), hidden(n) {}
  ClickGenerator::Rows out() { return {x.data(), ids.data(), labels.data(), hidden.data()}; }
  bool operator==(const Rows&) const = default;

  std::vector<float> x;
  std::vector<std::uint64_t> ids;
  std::vector<std::int32_t> labels;
  std::vector<float> hidden;
};

Rows rows_of(const ClickGenerator& clicks, std::uint64_t first, std::size_t n,
             std::size_t threads = 1,
             ClickGenerator::Stream stream = ClickGenerator::Stream::train) {
  Rows rows(n, clicks.features());
  clicks.fill(stream, first, n, rows.out(), threads);
  return rows;
}

ClickGenerator::Settings settings(std::uint64_t seed = 0, double drift = 0) {
  return {seed, std::vector<std::uint64_t>(26, 100'000), 1.2, drift};
}

double mean(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

double correlation(const std::vector<float>& a, const std::vector<float>& b) {
  const double mean_a = mean(a), mean_b = mean(b);
  double aa = 0, bb = 0, ab = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
    ab += (a[i] - mean_a) * (b[i] - mean_b);
  }
  return ab / std::sqrt(aa * bb);
}

}  // namespace

TEST_CASE("ids have Zipf's distribution, exactly, for any exponent") {
  constexpr std::size_t kDraws = 200'000;
  for (const double s : {0.05, 0.5, 0.999, 1.0, 1.001, 1.2, 2.0, 5.0, 40.0}) {
    for (const std::uint64_t n : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{10},
                                  std::uint64_t{1000}, std::uint64_t{50'000}}) {
      CAPTURE(s);
      CAPTURE(n);
      const Zipf zipf(s, n);
      std::map<std::uint64_t, double> seen;
      std::size_t tried = 0, taken = 0;
      while (taken < kDraws) {
        const auto words = philox(n, 17, tried++);
        const auto u = static_cast<double>((std::uint64_t{words[0]} << 32 | words[1]) >> 11);
        if (const auto k = zipf(u * 0x1p-53)) {
          ++seen[*k];
          ++taken;
        }
      }
      CHECK(taken > tried / 2);
      CHECK(seen.begin()->first >= 1);
      CHECK(seen.rbegin()->first <= n);
      double total = 0;
      for (std::uint64_t k = 1; k <= n; ++k) total += std::pow(static_cast<double>(k), -s);
      // Neighbours together until 20 are expected.
      double chi = 0, expected = 0, got = 0;
      std::size_t cells = 0;
      for (std::uint64_t k = 1; k <= n; ++k) {
        expected += kDraws * std::pow(static_cast<double>(k), -s) / total;
        const auto found = seen.find(k);
        if (found != seen.end()) got += found->second;
        if (expected < 20 && k < n) continue;
        if (expected > 0.5) chi += (got - expected) * (got - expected) / expected;
        ++cells;
        expected = got = 0;
      }
      // Its mean is cells − 1, its variance twice that: five standard deviations and some.
      const auto freedom = static_cast<double>(cells);
      CHECK(chi < freedom + 5 * std::sqrt(2 * freedom) + 10);
    }
  }
}

TEST_CASE("Zipf's numbers stay in range where there are very many of them") {
  for (const double s : {0.01, 1.0, 1.05, 3.0}) {
    const Zipf zipf(s, Zipf::kMost);
    for (const double u : {0.0, 0x1p-53, 0.25, 0.5, 1 - 0x1p-53}) {
      const auto k = zipf(u);
      if (k) CHECK((*k >= 1 && *k <= Zipf::kMost));
    }
  }
}

TEST_CASE("a row is the same whoever makes it, and with which others") {
  for (const std::size_t features : {0u, 1u, 25u, 26u}) {
    auto given = settings(7, 0.2);
    given.cardinalities.resize(features);
    const ClickGenerator clicks(given, 3), again(given, 3);
    const Rows all = rows_of(clicks, 0, 5000);
    CHECK(rows_of(again, 0, 5000, 8) == all);
    const Rows part = rows_of(clicks, 1234, 100, 2);
    for (std::size_t i = 0; i < 100; ++i) {
      CHECK(part.labels[i] == all.labels[1234 + i]);
      CHECK(part.hidden[i] == all.hidden[1234 + i]);
    }
    CHECK(std::equal(part.ids.begin(), part.ids.end(),
                     all.ids.begin() + static_cast<std::ptrdiff_t>(1234 * features)));
    CHECK(std::equal(part.x.begin(), part.x.end(),
                     all.x.begin() + 1234 * std::ptrdiff_t{ClickGenerator::kNumbers}));
    clicks.fill(ClickGenerator::Stream::train, 0, 0, {}, 4);  // no row
  }
}

TEST_CASE("seeds, days and streams differ") {
  const ClickGenerator clicks(settings(), 0);
  const Rows rows = rows_of(clicks, 0, 1000);
  CHECK(rows_of(ClickGenerator(settings(1), 0), 0, 1000).ids != rows.ids);
  CHECK(rows_of(ClickGenerator(settings(), 1), 0, 1000).ids != rows.ids);
  CHECK(rows_of(clicks, 0, 1000, 1, ClickGenerator::Stream::test).ids != rows.ids);
}

TEST_CASE("labels are drawn with the hidden probabilities, a quarter of them 1") {
  for (const std::uint64_t seed : {0u, 1u, 2u, 3u}) {
    constexpr std::size_t kRows = 50'000;
    const Rows rows = rows_of(ClickGenerator(settings(seed), 0), 0, kRows, 2);
    CHECK(mean(rows.hidden) == doctest::Approx(ClickGenerator::kRate).epsilon(0.04));
    // By tenths of the probability: as many clicks as it says, within five standard deviations.
    std::array<double, 10> clicks{}, expected{}, variance{};
    for (std::size_t i = 0; i < kRows; ++i) {
      const double p = rows.hidden[i];
      REQUIRE((p >= 0 && p <= 1));
      const auto tenth = std::min<std::size_t>(9, static_cast<std::size_t>(p * 10));
      clicks[tenth] += rows.labels[i];
      expected[tenth] += p;
      variance[tenth] += p * (1 - p);
    }
    for (std::size_t t = 0; t < 10; ++t) {
      CHECK(std::abs(clicks[t] - expected[t]) <= 5 * std::sqrt(variance[t]) + 1);
    }
  }
}

TEST_CASE("numbers are logarithms of counts, some of them missing") {
  const Rows rows = rows_of(ClickGenerator(settings(), 0), 0, 20'000);
  std::size_t zeros = 0;
  for (const float x : rows.x) {
    const double count = std::expm1(double{x});
    if (!(x >= 0 && x < 17) || std::abs(count - std::round(count)) > 1e-5 * (1 + count)) {
      FAIL_CHECK("no logarithm of a count: " << x);
    }
    zeros += x == 0;
  }
  CHECK(zeros > rows.x.size() / 5);
  CHECK(zeros < rows.x.size() / 5 * 4);
}

TEST_CASE("without drift days have one hidden model, with drift part of it moves") {
  const Rows rows = rows_of(ClickGenerator(settings(4), 0), 0, 5000);
  const auto logits = [&](double drift, std::uint32_t day) {
    const ClickGenerator clicks(settings(4, drift), day);
    std::vector<float> values;
    for (std::size_t i = 0; i < rows.labels.size(); ++i) {
      const double p = clicks.probability(rows.x.data() + i * ClickGenerator::kNumbers,
                                          rows.ids.data() + i * clicks.features());
      values.push_back(static_cast<float>(std::log(p / (1 - p))));
    }
    return values;
  };
  const auto today = logits(0, 0);
  const auto alike = [&](double drift, std::uint32_t day) {
    return correlation(today, logits(drift, day));
  };
  CHECK(alike(0.3, 0) == doctest::Approx(1));
  CHECK(alike(0, 7) == doctest::Approx(1));
  CHECK(alike(0.1, 1) < 0.999);
  CHECK(alike(0.1, 1) > alike(0.1, 9));
  CHECK(alike(0.02, 1) > alike(1, 1));
  // A day's move is from the day before: both have moved away from the first in the same way.
  CHECK(correlation(logits(0.1, 8), logits(0.1, 9)) > alike(0.1, 9));
  for (const std::uint32_t day : {1u, 4u}) {
    const Rows later = rows_of(ClickGenerator(settings(4, 0.3), day), 0, 50'000, 2);
    CHECK(mean(later.hidden) == doctest::Approx(ClickGenerator::kRate).epsilon(0.04));
  }
}
