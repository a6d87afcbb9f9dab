// Negatives: how often each id is drawn, that they depend on (seed, place) alone, and how batches
// have them.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "leashed/data/gathered_columns.h"
#include "leashed/data/negatives.h"

namespace {

using leashed::Negatives;
using Sampling = Negatives::Sampling;

TEST_CASE("ids are drawn as often as expected") {
  for (const Sampling sampling : {Sampling::uniform, Sampling::log_uniform}) {
    for (const std::uint64_t below : {1, 2, 7, 50}) {
      const Negatives negatives{200'000, below, sampling};
      std::vector<std::uint64_t> ids(negatives.count);
      negatives.draw(11, 3, ids.data());
      std::vector<double> seen(below);
      for (const std::uint64_t id : ids) {
        REQUIRE(id < below);
        ++seen[id];
      }
      double all = 0;
      for (std::uint64_t id = 0; id < below; ++id) {
        const double expected = std::exp(negatives.log_expected(id));
        all += expected;
        CHECK(std::abs(seen[id] - expected) < 5 * std::sqrt(expected) + 1e-6);
      }
      CHECK(all == doctest::Approx(negatives.count));
    }
  }
}

TEST_CASE("the largest range is drawn from") {
  for (const Sampling sampling : {Sampling::uniform, Sampling::log_uniform}) {
    const Negatives negatives{1000, (std::uint64_t{1} << 31) - 1, sampling};
    std::vector<std::uint64_t> ids(negatives.count);
    negatives.draw(0, 0, ids.data());
    std::uint64_t largest = 0;
    for (const std::uint64_t id : ids) {
      CHECK(id < negatives.below);
      largest = std::max(largest, id);
    }
    CHECK(largest > negatives.below / 2);
  }
}

TEST_CASE("they depend on seed and place alone") {
  const Negatives negatives{40, 1000, Sampling::log_uniform};
  std::vector<std::uint64_t> a(40), b(40);
  negatives.draw(1, 64, a.data());
  negatives.draw(1, 64, b.data());
  CHECK(a == b);
  negatives.draw(1, 128, b.data());
  CHECK(a != b);
  negatives.draw(2, 64, b.data());
  CHECK(a != b);
}

TEST_CASE("a batch's first example has them all, beside what rows have") {
  const std::vector<std::uint64_t> ids = {5, 6, 7, 8};
  leashed::IdFeature drawn;
  drawn.negatives = {3, 10};
  const leashed::IdFeature features[] = {{ids.data(), 1}, drawn, {ids.data(), 1}};
  const std::size_t rows[] = {2, 0};
  leashed::GatheredColumns gathered;
  const auto columns = gathered.gather(features, rows, {7, 100});
  REQUIRE(columns.size() == 3);
  CHECK(columns[0].ids[0] == 7);
  CHECK(columns[2].ids[1] == 5);
  CHECK(columns[1].offsets[0] == 0);
  CHECK(columns[1].offsets[1] == 3);
  CHECK(columns[1].offsets[2] == 3);
  std::vector<std::uint64_t> expected(3);
  drawn.negatives.draw(7, 100, expected.data());
  CHECK(std::vector<std::uint64_t>(columns[1].ids, columns[1].ids + 3) == expected);
}

}  // namespace
