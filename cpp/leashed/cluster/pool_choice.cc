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
  std::vector<std::size_t> there;  // ids by server
  for (std::size_t n = 0; servers_ && n < seen_.size(); ++n) {
    if (there.size() <= servers_[n]) there.resize(servers_[n] + std::size_t{1});
    ++there[servers_[n]];
  }
  if (!servers_) there = {seen_.size()};
  // Of a pool how many entries it has; of a maximum that several servers may have the winners.
  const bool winners = servers_ && pooling == Pooling::max;
  const auto floats = static_cast<double>(dim);
  double pools = 0, lookup = 0;
  std::vector<std::size_t> last(there.size());  // by server, the example that had ids there
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t end = column.end(i);
    for (std::size_t e = column.begin(i); e < end; ++e) {
      const std::size_t server = servers_ ? servers_[entries[e]] : 0;
      const double number = there[server] <= kNarrowPlaces ? 2 : 4;
      lookup += number + (column.weights ? 4 : 0);
      if (std::exchange(last[server], i + 1) == i + 1) continue;
      pools += number + (winners ? 8 + number : 8) * floats;
    }
  }
  return {ids * (8 + 8 * floats), pools + 8 * ids + lookup, lookup};
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
    sums_[f].entries = std::max(sums_[f].entries, costs[f].entries);
  }
  if (++batches_ < kBatches) return;
  double entries = 0;
  for (std::size_t f = 0; f < sums_.size(); ++f) {
    const bool fewer = sums_[f].rows > kMargin * sums_[f].pools;
    if (!fewer || entries + sums_[f].entries > kEntries) {
      chosen_[f].reset();
    } else {
      entries += sums_[f].entries;
    }
  }
  decided_.store(true, std::memory_order_release);
}

}  // namespace leashed
