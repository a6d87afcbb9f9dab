// Which server has the row of an id.
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "leashed/table/row_placement.h"
#include "leashed/table/table.h"

using namespace leashed;

namespace {

constexpr std::uint32_t kSpread = RowPlacement::kSpread;

}  // namespace

TEST_CASE("a table is where it is placed whole, or its ids are spread evenly") {
  std::mt19937_64 random(1);
  for (const std::size_t servers : {1, 2, 3, 7, 256}) {
    CAPTURE(servers);
    const RowPlacement placement({{false, kSpread}, {true, kSpread}, {true, 1}},
                                 RowPlacement::evenly(servers));
    std::vector<std::size_t> fixed(servers), growing(servers), in_order(servers);
    constexpr std::size_t kIds = 256 * 1000;
    for (std::uint64_t i = 0; i < kIds; ++i) {
      const std::uint64_t id = random();
      ++fixed[placement(0, i)];
      ++growing[placement(1, id)];
      ++in_order[placement(1, i)];
      REQUIRE(placement(2, id) == 1);
      REQUIRE(placement(0, i) == placement(0, i + 256));
    }
    // A server has as many shards or one more; what chance makes of the ids in them is beside that.
    const double share = double(kIds) / double(servers);
    const double most = double((256 + servers - 1) / servers) * 1000;
    const double least = double(256 / servers) * 1000;
    for (std::size_t s = 0; s < servers; ++s) {
      CHECK(double(fixed[s]) <= most);
      CHECK(double(fixed[s]) >= least);
      for (const auto& hashed : {growing, in_order}) {
        CHECK(double(hashed[s]) < most + 5 * std::sqrt(share));
        CHECK(double(hashed[s]) > least - 5 * std::sqrt(share));
      }
    }
  }
}

TEST_CASE("a shard may be any server's") {
  RowPlacement::Servers servers = RowPlacement::evenly(2);
  servers[5] = 9;
  const RowPlacement placement({{false, kSpread}}, servers);
  CHECK(placement(0, 5) == 9);
  CHECK(placement(0, 256 + 5) == 9);
  CHECK(placement(0, 6) == 0);
  CHECK(placement(0, 7) == 1);
}

TEST_CASE("the ids of one server fill all of a growing table's memory") {
  for (const std::size_t servers : {1, 2, 4, 256}) {
    CAPTURE(servers);
    Table table({.name = "t",
                 .dim = 1,
                 .max_bytes = std::size_t{1} << 21,
                 .initial = {"zeros"},
                 .rule = {"sgd", {{"lr", 1}}},
                 .staleness = {"none"}});
    const RowPlacement placement({{true, kSpread}}, RowPlacement::evenly(servers));
    const std::size_t capacity = table.growth().statistics().capacity;
    std::vector<std::uint64_t> ids;
    for (std::uint64_t id = 1; ids.size() < 2 * capacity; ++id) {
      if (placement(0, id) == servers - 1) ids.push_back(id);
    }
    const std::vector<float> gradients(ids.size());
    table.update(ids.data(), ids.size(), gradients.data(), nullptr);
    CHECK(table.growth().statistics().rows == capacity);
  }
}
