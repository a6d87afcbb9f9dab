// What adaptive policies gather of staleness, and what they make of it where it is in the
// thousands.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <thread>
#include <vector>

#include "leashed/staleness/registry.h"
#include "leashed/staleness/statistics.h"

using namespace leashed;

namespace {

constexpr double kWidth = 1 / 512.0;  // of a bin, relative to what is in it

std::vector<std::uint64_t> sample(std::uint64_t largest) {
  std::vector<std::uint64_t> taus;
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> share(0, 1);
  const double octaves = std::log2(static_cast<double>(largest) + 1);
  for (int i = 0; i < 4000; ++i) {
    taus.push_back(static_cast<std::uint64_t>(std::exp2(octaves * share(random))) - 1);
  }
  std::sort(taus.begin(), taus.end());
  return taus;
}

}  // namespace

TEST_CASE("shares and quantiles are exact below 1,024, and to 0.2% of the staleness above") {
  for (const std::uint64_t largest : {1023ull, 1024ull, 5000ull, 1000000ull, (1ull << 32) - 1}) {
    CAPTURE(largest);
    const std::vector<std::uint64_t> taus = sample(largest);
    StalenessStatistics statistics;
    for (const std::uint64_t tau : taus) statistics.add(tau);
    const auto n = static_cast<double>(taus.size());
    const auto share_below = [&](double tau) {
      const auto at = std::lower_bound(taus.begin(), taus.end(), tau,
                                       [](std::uint64_t a, double b) { return double(a) < b; });
      return static_cast<double>(at - taus.begin()) / n;
    };
    for (std::size_t i = 0; i < taus.size(); i += 13) {
      const auto tau = static_cast<double>(taus[i]);
      if (tau < 1024) {
        CHECK(statistics.below(tau) == share_below(tau));
        CHECK(statistics.below(tau - 0.5) == share_below(tau));
      } else {
        CHECK(statistics.below(tau) >= share_below(tau * (1 - kWidth)));
        CHECK(statistics.below(tau) <= share_below(tau * (1 + kWidth)));
      }
    }
    CHECK(statistics.below(static_cast<double>(largest) * 2) == 1);
    for (const double share : {0.001, 0.25, 0.5, 0.9, 0.997, 1.0}) {
      const auto exact =
          static_cast<double>(taus[static_cast<std::size_t>(std::ceil(share * n)) - 1]);
      CHECK(std::abs(statistics.quantile(share) - exact) <=
            (exact < 1024 ? 0 : exact * kWidth / 2));
    }
  }
}

TEST_CASE("mean and deviation are exact whatever the bins") {
  StalenessStatistics statistics;
  for (std::uint64_t tau = 3000; tau <= 5000; ++tau) statistics.add(tau);
  CHECK(statistics.mean() == 4000);
  CHECK(statistics.deviation() == doctest::Approx(std::sqrt((2001.0 * 2001 - 1) / 12)));
}

TEST_CASE("nothing gathered is staleness 0, and a share below 0 is none") {
  StalenessStatistics statistics;
  CHECK(statistics.quantile(0.997) == 0);
  CHECK(statistics.below(5) == 0);
  statistics.add(0);
  CHECK(statistics.below(0) == 0);
  CHECK(statistics.below(-0.5) == 0);
}

TEST_CASE("what was gathered goes on from its numbers, and from those of 1,024 bins") {
  const std::vector<std::uint64_t> taus = sample(50000);
  StalenessStatistics whole, half;
  for (const std::uint64_t tau : taus) whole.add(tau);
  for (std::size_t i = 0; i < taus.size() / 2; ++i) half.add(taus[i]);
  std::vector<std::uint64_t> numbers;
  half.save(numbers);
  CHECK(StalenessStatistics::binned(numbers) == taus.size() / 2);
  while (numbers.back() == 0) numbers.pop_back();  // as files have them
  StalenessStatistics resumed;
  resumed.restore(numbers);
  for (std::size_t i = taus.size() / 2; i < taus.size(); ++i) resumed.add(taus[i]);
  CHECK(resumed.count() == whole.count());
  CHECK(resumed.mean() == whole.mean());
  CHECK(resumed.deviation() == whole.deviation());
  for (const std::uint64_t tau : taus) {
    REQUIRE(resumed.below(double(tau)) == whole.below(double(tau)));
  }

  // Files written before the bins went on past 1,024: count, sum, squares and the bins.
  std::vector<std::uint64_t> old(3 + 1024, 0);
  old[0] = 4, old[1] = 0 + 7 + 7 + 1023, old[2] = 49 + 49 + 1023 * 1023;
  old[3] = 1, old[3 + 7] = 2, old[3 + 1023] = 1;
  StalenessStatistics before;
  before.restore(old);
  CHECK(before.below(7) == 0.25);
  CHECK(before.below(8) == 0.75);
  CHECK(before.quantile(1) == 1023);
  before.add(4000);
  CHECK(std::abs(before.quantile(1) - 4000) <= 4);
}

TEST_CASE("threads add and read at any time") {
  StalenessStatistics statistics;
  constexpr std::uint64_t kEach = 20000;
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&, thread] {
        for (std::uint64_t i = 0; i < kEach; ++i) statistics.add(1000 * thread + i % 1000);
      });
    }
    // The count is added to first: there may be less in the bins, and no staleness was ever more.
    while (statistics.count() < 3 * kEach) {
      CHECK(statistics.quantile(1) < 3000);
      CHECK(statistics.below(3000) <= 1);
    }
  }
  CHECK(statistics.below(3000) == 1);
  CHECK(statistics.below(1000) == doctest::Approx(1 / 3.0));
}

TEST_CASE("TAIL-τ and FLeet at staleness in the thousands") {
  const auto tail = make_staleness({"tail_tau", {{"amplitude", 0.9}, {"warmup", 1}}});
  const auto fleet = make_staleness({"fleet", {{"threshold", 0}, {"percentile", 75}}});
  for (std::uint64_t tau = 1; tau <= 4000; ++tau) {
    tail->observe(tau);
    fleet->observe(tau);
  }
  CHECK(tail->factor(4000) == doctest::Approx(0.1).epsilon(0.02));
  CHECK(tail->factor(2000) == doctest::Approx(1).epsilon(0.002));
  CHECK(tail->factor(0) == 1.9);
  // The 75th percentile is 3,000: the inverse is met at half of it.
  CHECK(fleet->factor(1500) == doctest::Approx(1 / 1501.0).epsilon(0.01));
}

TEST_CASE("TAIL-τ at A = 1 leaves no gradient out, and learns of staleness that grows") {
  const auto tail = make_staleness({"tail_tau", {{"amplitude", 1}, {"warmup", 10}}});
  CHECK_FALSE(tail->excludes());
  CHECK(tail->factor(5) == 1);
  for (std::uint64_t tau = 0; tau < 10; ++tau) tail->observe(tau);
  CHECK(tail->factor(0) == 2);
  CHECK(tail->factor(9) == doctest::Approx(0.2));
  CHECK(tail->factor(10) > 0);  // which 0 is not: that would leave it out
  CHECK(tail->factor(10) < 1e-300);
  for (std::uint64_t tau = 4000; tau < 14000; ++tau) {
    const double factor = tail->factor(static_cast<double>(tau));
    if (!(factor > 0 && factor < 0.5)) FAIL_CHECK(factor);
    tail->observe(tau);
  }
  CHECK(tail->factor(9000) == doctest::Approx(1).epsilon(0.01));
}
