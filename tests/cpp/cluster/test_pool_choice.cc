// What rows of a feature cost, and what pools of them do.
#include <doctest/doctest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "leashed/cluster/pool_choice.h"

using namespace leashed;

TEST_CASE("a place beyond 65,536 ids costs 4 bytes, at the server that has so many") {
  for (const std::size_t count : {kNarrowPlaces, kNarrowPlaces + 1}) {
    std::vector<std::uint64_t> ids(count);
    std::iota(ids.begin(), ids.end(), std::uint64_t{0});
    std::vector<std::uint32_t> entries(count);
    std::iota(entries.begin(), entries.end(), 0U);
    const std::vector<std::uint32_t> offsets{0, static_cast<std::uint32_t>(count)};
    const IdColumn column{ids.data(), offsets.data(), nullptr};
    const auto n = static_cast<double>(count);
    const double width = count > kNarrowPlaces ? 4 : 2;
    constexpr std::size_t kDim = 4;

    TableUse whole(count, nullptr);
    whole.read(entries);
    const TableUse::Cost one = whole.cost(column, 1, entries, kDim, Pooling::sum);
    CHECK(one.rows == n * (8 + 8 * kDim));
    CHECK(one.pools == width + 8 * kDim + n * (8 + width));

    std::vector<std::uint32_t> servers(count, 1);  // but for one id
    servers[0] = 0;
    TableUse spread(count, servers.data());
    spread.read(entries);
    const TableUse::Cost two = spread.cost(column, 1, entries, kDim, Pooling::max);
    CHECK(two.pools == 2 * (2 + 10 * kDim) + n * (8 + 2));  // one fewer at each
  }
}
