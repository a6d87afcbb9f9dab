#include "leashed/cluster/remote_batch.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "leashed/base/error.h"
#include "leashed/cluster/remote_lanes.h"
#include "leashed/cluster/row_memory.h"
#include "leashed/table/no_row.h"

namespace leashed {

void RemoteRows::combine(Slot& slot, const BatchView& batch, RemoteBatch& rows, bool trains) {
  const PoolChoice::Poolings* const poolings = choice_.decided();
  if (poolings && rows.pooled.empty()) begin_pools(*poolings, rows);
  combine_batch(plan_.features_of_tables, batch, slot.combiner, rows, rows.pooled, rows.earlier);
  rows.size = batch.size;
  for (std::size_t t = 0; t < plan_.tables.size(); ++t) {
    const ServedTable& table = plan_.tables[t];
    for (const std::uint64_t id : rows.located[t].ids) {
      if (table.rows == 0 || id < table.rows) continue;
      throw no_row(table.name, id, table.rows);
    }
  }
  share_out(rows);
  ask(rows);
  if (trains && !poolings) weigh(batch, rows);
  find_places(rows);
  for (std::size_t f = 0; f < plan_.features_of_tables.size(); ++f) {
    if (whole_[plan_.features_of_tables[f]] || (!rows.pooled.empty() && rows.pooled[f])) continue;
    const std::vector<std::uint32_t>& ranks = rows.ranks[plan_.features_of_tables[f]];
    for (std::uint32_t& place : rows.entries[f]) place = ranks[place];
  }
  if (!rows.pools.empty()) find_pools(batch, rows);
  lay_out(rows);
}

// From here on the batch's features are pooled as it is decided.
void RemoteRows::begin_pools(const PoolChoice::Poolings& poolings, RemoteBatch& rows) const {
  for (std::size_t f = 0; f < poolings.size(); ++f) {
    const std::size_t t = plan_.features_of_tables[f];
    rows.pooled.push_back(poolings[f].has_value());
    if (!rows.pooled[f]) continue;
    rows.pools.emplace_back(f, t, plan_.tables[t].dim, *poolings[f], plan_.servers, whole_[t]);
  }
  rows.replies.resize(plan_.servers);
}

void RemoteRows::share_out(RemoteBatch& rows) const {
  for (std::size_t t = 0; t < plan_.tables.size(); ++t) {
    const std::vector<std::uint64_t>& ids = rows.located[t].ids;
    // How many each server has, and from where on.
    std::vector<std::uint32_t>&first = rows.first[t], &shown = rows.shown[t];
    std::vector<std::uint32_t>& ranks = rows.ranks[t];
    first.assign(plan_.servers + 1, 0);
    shown.assign(plan_.servers + 1, 0);
    if (whole_[t]) {  // as they are
      const auto behind = static_cast<std::ptrdiff_t>(*whole_[t]) + 1;
      std::fill(first.begin() + behind, first.end(), static_cast<std::uint32_t>(ids.size()));
      std::fill(shown.begin() + behind, shown.end(), static_cast<std::uint32_t>(rows.earlier[t]));
      continue;
    }
    ranks.resize(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ranks[i] = static_cast<std::uint32_t>(plan_.placement(t, ids[i]));
      ++first[ranks[i] + 1];
      shown[ranks[i] + 1] += i < rows.earlier[t] ? 1 : 0;
    }
    for (std::size_t s = 0; s < plan_.servers; ++s) {
      first[s + 1] += first[s];
      shown[s + 1] += shown[s];
    }
  }
}

void RemoteRows::ask(RemoteBatch& rows) const {
  for (std::size_t s = 0; s < plan_.servers; ++s) {
    RemoteBatch::Part& part = rows.parts[s];
    const std::vector<std::size_t>& tables = tables_of_[s];
    const std::size_t numbers = (rows.pools.empty() ? 1 : 2) * tables.size();
    const std::size_t words = sizeof(LookupHead) / sizeof(std::uint64_t) + (numbers + 1) / 2;
    std::size_t count = 0;
    part.floats = 0;
    for (const std::size_t t : tables) {
      count += rows.first[t][s + 1] - rows.first[t][s];
      part.floats += (rows.shown[t][s + 1] - rows.shown[t][s]) * plan_.tables[t].dim;
    }
    part.bytes = part.floats * sizeof(float);
    part.ask.resize(words + count);
    part.ask[words - 1] = 0;  // a count may be missing there
    auto* counts = reinterpret_cast<std::byte*>(part.ask.data()) + sizeof(LookupHead);
    const auto count_each = [&](const std::vector<std::vector<std::uint32_t>>& of) {
      for (const std::size_t t : tables) {
        const std::uint32_t n = of[t][s + 1] - of[t][s];
        std::memcpy(counts, &n, sizeof n);
        counts += sizeof n;
      }
    };
    count_each(rows.first);
    if (!rows.pools.empty()) count_each(rows.shown);
    part.pools.clear();
    part.next = words;
  }
  for (std::size_t t = 0; t < plan_.tables.size(); ++t) {
    const std::vector<std::uint64_t>& ids = rows.located[t].ids;
    if (whole_[t]) {
      RemoteBatch::Part& part = rows.parts[*whole_[t]];
      std::ranges::copy(ids, part.ask.data() + part.next);
      part.next += ids.size();
      continue;
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      RemoteBatch::Part& part = rows.parts[rows.ranks[t][i]];
      part.ask[part.next++] = ids[i];
    }
  }
}

void RemoteRows::weigh(const BatchView& batch, const RemoteBatch& rows) {
  const PoolChoice::Poolings& poolings = choice_.poolings();
  std::vector<PoolChoice::Cost> costs(poolings.size());
  for (std::size_t t = 0; t < plan_.tables.size(); ++t) {
    TableUse use(rows.located[t].ids.size(), whole_[t] ? nullptr : rows.ranks[t].data());
    const auto each = [&](bool pooled, const auto& f) {
      for (std::size_t feature = 0; feature < poolings.size(); ++feature) {
        if (plan_.features_of_tables[feature] != t) continue;
        if (poolings[feature].has_value() == pooled) f(feature);
      }
    };
    each(false, [&](std::size_t f) { use.take_rows(rows.entries[f]); });
    each(true, [&](std::size_t f) { use.read(rows.entries[f]); });
    each(true, [&](std::size_t f) {
      costs[f] = use.cost(batch.columns[f], batch.size, rows.entries[f], plan_.tables[t].dim,
                          *poolings[f]);
    });
  }
  choice_.add(costs);
}

// From servers to places.
void RemoteRows::find_places(RemoteBatch& rows) const {
  for (std::size_t t = 0; t < plan_.tables.size(); ++t) {
    if (whole_[t]) continue;
    std::vector<std::uint32_t>& ranks = rows.ranks[t];
    const bool pooled = std::ranges::count(rows.pools, t, &AskedPool::table) > 0;
    rows.spots[t].resize(pooled ? ranks.size() : 0);
    std::vector<std::uint32_t> next(plan_.servers, 0);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const std::uint32_t server = ranks[i], place = next[server]++;
      if (pooled) rows.spots[t][i] = {server, place};
      ranks[i] = rows.shown[t][server] + place;  // (of ids that are not shown of no use)
    }
  }
}

void RemoteRows::find_pools(const BatchView& batch, RemoteBatch& rows) const {
  std::vector<std::size_t> next(plan_.tables.size());
  for (std::size_t t = 0; t < next.size(); ++t) next[t] = rows.shown[t][plan_.servers];
  for (AskedPool& pool : rows.pools) {
    const std::size_t t = pool.table;
    pool.find(batch.columns[pool.feature], batch.size, rows.entries[pool.feature].data(),
              pool.whole ? nullptr : rows.spots[t].data(), next[t]);
    next[t] += pool.rows();
    rows.places[pool.feature] = pool.places();
  }
  for (std::size_t s = 0; s < plan_.servers; ++s) {
    RemoteBatch::Part& part = rows.parts[s];
    for (AskedPool& pool : rows.pools) {
      const std::size_t t = pool.table;
      if (pool.pools_of(s) == 0) continue;
      const auto number = std::ranges::find(tables_of_[s], t) - tables_of_[s].begin();
      pool.tell(s, static_cast<std::size_t>(number), rows.first[t][s + 1] - rows.first[t][s],
                part.pools);
      part.floats += pool.floats_of(s);
      part.bytes += pool.floats_of(s) * sizeof(float) + pool.winner_bytes_of(s);
    }
  }
}

void RemoteRows::lay_out(RemoteBatch& rows) const {
  for (std::size_t t = 0; t < plan_.tables.size(); ++t) {
    const std::size_t dim = plan_.tables[t].dim;
    std::size_t count = rows.shown[t][plan_.servers];
    for (const AskedPool& pool : rows.pools) count += pool.table == t ? pool.rows() : 0;
    rows.pointers[t].resize(count);
    reach_floats(rows.gradients[t], count * dim);
    rows.rows[t] = {count, dim, dim, rows.pointers[t].data(), rows.gradients[t].data()};
  }
  for (std::size_t s = 0; s < plan_.servers; ++s) {
    RemoteBatch::Part& part = rows.parts[s];
    reach_floats(part.values, (part.bytes + sizeof(float) - 1) / sizeof(float));
    part.there = false;
    const float* values = part.values.data();
    part.pushed.clear();
    part.pushed.push_back(std::as_bytes(std::span(&part.head, 1)));
    const auto push = [&part](const float* from, std::size_t floats) {
      if (floats > 0) part.pushed.push_back(std::as_bytes(std::span(from, floats)));
    };
    for (const std::size_t t : tables_of_[s]) {
      const std::size_t dim = plan_.tables[t].dim, begin = rows.shown[t][s];
      const std::size_t end = rows.shown[t][s + 1];
      for (std::size_t i = begin; i < end; ++i, values += dim) rows.pointers[t][i] = values;
      push(rows.gradients[t].data() + begin * dim, (end - begin) * dim);
    }
    for (AskedPool& pool : rows.pools) {
      const std::size_t t = pool.table, dim = plan_.tables[t].dim, floats = pool.floats_of(s);
      if (floats == 0) continue;
      if (pool.whole) {
        for (std::size_t i = 0; i < pool.count(); ++i) {
          rows.pointers[t][pool.first() + i] = values + i * dim;
        }
      }
      push(pool.whole ? rows.gradients[t].data() + pool.first() * dim : pool.d_pools_of(s), floats);
      values += floats;
    }
  }
  for (AskedPool& pool : rows.pools) {
    const std::size_t dim = plan_.tables[pool.table].dim;
    std::vector<const float*>& pointers = rows.pointers[pool.table];
    pointers[pool.first() + pool.count()] = zeros_.data();
    if (pool.whole) continue;
    const float* const pools = pool.pools();
    for (std::size_t i = 0; i < pool.count(); ++i) pointers[pool.first() + i] = pools + i * dim;
  }
}

void RemoteRows::join_pools(RemoteBatch& rows) {
  std::vector<std::size_t> floats(rows.parts.size()), bytes(rows.parts.size());
  for (std::size_t s = 0; s < rows.parts.size(); ++s) {
    bytes[s] = rows.parts[s].floats * sizeof(float);
    floats[s] = rows.parts[s].floats;
    for (const AskedPool& pool : rows.pools) floats[s] -= pool.floats_of(s);
  }
  for (AskedPool& pool : rows.pools) {
    for (std::size_t s = 0; s < rows.parts.size(); ++s) {
      const AlignedArray<float>& values = rows.parts[s].values;
      rows.replies[s] = {values.data() + floats[s],
                         reinterpret_cast<const std::byte*>(values.data()) + bytes[s]};
      floats[s] += pool.floats_of(s);
      bytes[s] += pool.winner_bytes_of(s);
    }
    if (!pool.whole) pool.join(rows.replies);
  }
}

bool RemoteRows::makes_sense(const RemoteBatch& rows, std::size_t server) {
  const RemoteBatch::Part& part = rows.parts[server];
  const auto* winners =
      reinterpret_cast<const std::byte*>(part.values.data()) + part.floats * sizeof(float);
  return std::ranges::all_of(rows.pools, [&](const AskedPool& pool) {
    const std::byte* const of = winners;
    winners += pool.winner_bytes_of(server);
    return pool.holds(server, of);
  });
}

// Throws Error where a server would refuse what it is asked for, however often.
void RemoteRows::check_size(const RemoteBatch& rows) const {
  for (std::size_t s = 0; s < plan_.servers; ++s) {
    const RemoteBatch::Part& part = rows.parts[s];
    const auto check = [&](std::uint64_t bytes, std::uint16_t kind, const char* what) {
      if (bytes <= kRowLimits[kind]) return;
      const std::string whose =
          plan_.apart ? "a look-up" : "a batch of " + std::to_string(rows.size) + " examples";
      throw Error(whose + " takes " + std::to_string(bytes >> 20) + " MiB of " + what +
                  " at embedding server " + std::to_string(s) + ", and a frame has " +
                  std::to_string(kRowLimits[kind] >> 20) +
                  (plan_.apart ? ": give fewer ids at once" : ": give a smaller batch_size") +
                  (rows.pools.empty() ? "" : ", or pooling rows"));
    };
    std::uint64_t floats = 0;
    for (const std::size_t t : tables_of_[s]) {
      floats += std::uint64_t{rows.first[t][s + 1] - rows.first[t][s]} * plan_.tables[t].dim;
    }
    check(part.ask.size() * sizeof(std::uint64_t) + part.pools.size(), kLookup,
          rows.pools.empty() ? "ids" : "ids and their places");
    check(std::max(floats, std::uint64_t{part.floats}) * sizeof(float) + sizeof(PushHead),
          kPushRows, "rows");
    check(part.bytes, kRows, "pools");
  }
}

void RemoteRows::show(RemoteBatch& rows, BatchView& batch) {
  batch.tables = rows.rows;
  batch.places = rows.places.data();
  if (rows.pools.empty()) return;
  join_pools(rows);
  rows.columns.assign(batch.columns.begin(), batch.columns.end());
  for (const AskedPool& pool : rows.pools) rows.columns[pool.feature] = {};  // a row an example
  batch.columns = rows.columns;
}

void RemoteRows::fill_in(RemoteBatch& rows) {
  for (RemoteBatch::Part& part : rows.parts) {
    if (!part.there) std::memset(part.values.data(), 0, part.bytes);
  }
}

}  // namespace leashed
