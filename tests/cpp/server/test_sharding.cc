// What each of several servers holds.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "leashed/server/sharding.h"

using namespace leashed;

namespace {

// Every parameter is in one shard; spans are ascending, apart and not empty.
void check_whole(const Sharding& made, std::size_t dimension) {
  std::vector<int> held(dimension);
  for (std::size_t s = 0; s < made.shards.size(); ++s) {
    std::size_t last = 0, size = 0;
    bool first = true;
    for (const ShardSpan& span : made.shards[s]) {
      CHECK(span.begin < span.end);
      CHECK((first || span.begin > last));
      for (std::size_t i = span.begin; i < span.end; ++i) ++held[i];
      last = span.end;
      size += span.end - span.begin;
      first = false;
    }
    CHECK(made.size(s) == size);
  }
  CHECK(std::all_of(held.begin(), held.end(), [](int n) { return n == 1; }));
}

bool same(const std::vector<ShardSpan>& a, const std::vector<ShardSpan>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](ShardSpan x, ShardSpan y) { return x.begin == y.begin && x.end == y.end; });
}

}  // namespace

TEST_CASE("layerwise: as many layers each, whatever they hold") {
  const std::size_t ends[] = {10, 20, 920, 930};
  const Sharding made = layerwise(ends, 2);
  REQUIRE(made.shards.size() == 2);
  CHECK(same(made.shards[0], {{0, 20}}));
  CHECK(same(made.shards[1], {{20, 930}}));
  CHECK(made.imbalance == doctest::Approx(910.0 / 900));  // the heaviest layer is on one anyway
  check_whole(made, 930);
}

TEST_CASE("memorywise: as many parameters each, wherever that cuts") {
  const Sharding made = memorywise(10, 4);
  CHECK(same(made.shards[0], {{0, 3}}));
  CHECK(same(made.shards[1], {{3, 6}}));
  CHECK(same(made.shards[2], {{6, 8}}));
  CHECK(same(made.shards[3], {{8, 10}}));
  CHECK(made.imbalance == 1);
}

TEST_CASE("packed: Graham's worst case for two is met") {
  const std::size_t ends[] = {1, 2, 3, 4, 5};
  const double costs[] = {3, 3, 2, 2, 2};  // at best 6; this way 7 = (4/3 − 1/6) · 6
  const Sharding made = packed(ends, costs, 2);
  CHECK(same(made.shards[0], {{0, 1}, {2, 3}, {4, 5}}));
  CHECK(same(made.shards[1], {{1, 2}, {3, 4}}));
  CHECK(made.imbalance == doctest::Approx(7.0 / 6));
}

TEST_CASE("more shards than there is to spread leave some empty") {
  const std::size_t ends[] = {2, 3};
  const double costs[] = {2, 1};
  for (const Sharding& made : {layerwise(ends, 5), memorywise(3, 5), packed(ends, costs, 5)}) {
    CHECK(made.shards.size() == 5);
    CHECK(made.imbalance == 1);
    check_whole(made, 3);
  }
}

TEST_CASE("layers without parameters, and costs of nothing") {
  const std::size_t ends[] = {0, 4, 4, 4, 6};
  const double nothing[] = {0, 0, 0, 0, 0};
  const double some[] = {5, 0, 0, 0, 0};
  check_whole(layerwise(ends, 3), 6);
  check_whole(packed(ends, nothing, 3), 6);
  check_whole(packed(ends, some, 2), 6);
  CHECK(packed(ends, nothing, 3).imbalance == 1);
}

TEST_CASE("random vectors: everything is somewhere once, and loads are within what is promised") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const std::size_t parts = 1 + random() % 12, shards = 1 + random() % 9;
    std::vector<std::size_t> ends;
    std::vector<double> costs;
    std::size_t dimension = 0;
    for (std::size_t k = 0; k < parts; ++k) {
      const std::size_t size = random() % 40;
      ends.push_back(dimension += size);
      costs.push_back(double(size));
    }
    if (dimension == 0) continue;
    check_whole(layerwise(ends, shards), dimension);
    const Sharding equal = memorywise(dimension, shards), least = packed(ends, costs, shards);
    check_whole(equal, dimension);
    check_whole(least, dimension);
    CHECK(equal.size(0) - equal.size(shards - 1) <= 1);
    CHECK(least.imbalance >= 1 - 1e-9);
    CHECK(least.imbalance <= 2 - 1.0 / double(shards) + 1e-9);
    CHECK(layerwise(ends, shards).imbalance >= 1 - 1e-9);
  }
}
