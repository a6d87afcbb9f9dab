// Rows that a server holds for many workers at once.
#include <doctest/doctest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "leashed/server/row_holder.h"

using namespace leashed;

TEST_CASE("a full table of a server takes in what the batches of all workers bring") {
  for (const std::size_t workers : {1, 4, 16}) {
    CAPTURE(workers);
    constexpr std::size_t kSize = 512;
    const auto table = std::make_shared<Table>(Table::Settings{.name = "a",
                                                               .dim = 4,
                                                               .max_bytes = std::size_t{1} << 22,
                                                               .initial = {"zeros"},
                                                               .rule = {"sgd", {{"lr", 0.5}}},
                                                               .staleness = {"none"},
                                                               .evict = "age"});
    RowHolder holder({table}, {0});
    std::vector<PulledRows> pulled(workers);
    const std::vector<float> nothing(holder.gradients_of(0, kSize));
    std::vector<std::uint64_t> ids(kSize);
    const IdColumn column{ids.data()};
    BatchView view{nullptr, Targets(), kSize};
    view.columns = {&column, 1};
    std::uint64_t next = 1, t = 0;
    const std::size_t capacity = table->growth().statistics().capacity;
    while (next < 3 * capacity) {
      PulledRows& rows = pulled[t % workers];
      if (!rows.keys.parts.empty()) holder.push(rows.keys, nothing.data(), t);
      std::iota(ids.begin(), ids.end(), next);
      next += kSize;
      ++t;
      holder.pull(view, rows);
    }
    const TableStatistics s = table->growth().statistics();
    CHECK(s.updates.refused + s.updates.deferred == 0);
    CHECK(100 * s.updates.late < s.asked);  // those to go are found by sampling
    CHECK(s.evicted > capacity);
    for (PulledRows& rows : pulled) holder.release(rows.keys);
  }
}
