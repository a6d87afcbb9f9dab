#include "leashed/cluster/pool_choice.h"

#include <algorithm>
#include <utility>

namespace leashed {

template <class F>
void TableUse::each_id(const std::vector<std::uint32_t>& entries, const F& f) {
  ++now_;
  for (const std::uint32_t id : entries) {
    if (std::exchange(seen_[id], now_) != now_) f(readers_[id]);
  }
}

void TableUse::take_rows(const std::vector<std::uint32_t>& entries) {
  for (const std::uint32_t id : entries) readers_[id] = kRow;
}

void TableUse::read(const std::vector<std::uint32_t>& entries) {
  each_id(entries, [](std::uint32_t& readers) { readers += readers == kRow ? 0 : 1; });
}

TableUse::Cost TableUse::cost(const IdColumn& column, std::size_t size,
                              const std::vector<std::uint32_t>& entries, std::size_t dim,
                              Pooling pooling) {
  double ids = 0;
  each_id(entries, [&ids](std::uint32_t readers) { ids += readers == kRow ? 0.0 : 1.0 / readers; });
  std::size_t pools = 0;
  std::vector<std::uint32_t> last;  // by server, the example that had ids there
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t begin = column.begin(i), end = column.end(i);
    if (!servers_) pools += end > begin ? 1 : 0;
    for (std::size_t e = begin; servers_ && e < end; ++e) {
      const std::size_t server = servers_[entries[e]];
      if (last.size() <= server) last.resize(server + 1);
      if (std::exchange(last[server], i + 1) != i + 1) ++pools;
    }
  }
  // Of a pool how many entries it has; of a maximum that several servers may have the winners.
  const bool winners = servers_ && pooling == Pooling::max;
  const auto floats = static_cast<double>(dim);
  return {ids * (8 + 8 * floats),
          static_cast<double>(pools) * (2 + (winners ? 10 : 8) * floats) + 8 * ids +
              static_cast<double>(entries.size()) * (column.weights ? 6 : 2)};
}

PoolChoice::PoolChoice(PooledAt at, Poolings poolings)
    : poolings_(std::move(poolings)), chosen_(poolings_), sums_(poolings_.size()) {
  const bool some = std::ranges::any_of(poolings_, [](const auto& one) { return one.has_value(); });
  if (at == PooledAt::rows) chosen_.assign(poolings_.size(), std::nullopt);
  if (at != PooledAt::automatic || !some) decided_.store(true, std::memory_order_release);
}

void PoolChoice::add(const std::vector<Cost>& costs) {
  const std::lock_guard lock(mutex_);
  if (decided()) return;
  for (std::size_t f = 0; f < sums_.size(); ++f) {
    sums_[f].rows += costs[f].rows;
    sums_[f].pools += costs[f].pools;
  }
  if (++batches_ < kBatches) return;
  for (std::size_t f = 0; f < sums_.size(); ++f) {
    if (sums_[f].rows <= kMargin * sums_[f].pools) chosen_[f].reset();
  }
  decided_.store(true, std::memory_order_release);
}

}  // namespace leashed
