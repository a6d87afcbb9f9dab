#include "leashed/cluster/remote_rows.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "leashed/base/clock.h"
#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/cluster/asked_pool.h"
#include "leashed/cluster/row_memory.h"

namespace leashed {
namespace {

constexpr double kLastWords = 2;  // seconds in which pushes are settled of a run that is stopped
constexpr std::chrono::milliseconds kAway{2};  // between two looks for a connection

// In nanoseconds.
void count_since(double begin, std::atomic<std::uint64_t>& counter) {
  counter.fetch_add(static_cast<std::uint64_t>((now() - begin) * 1e9), kRelaxed);
}

template <class T>
void say_one(Conversation& conversation, std::size_t lane, const FrameHeader& header,
             const T& what) {
  const auto part = std::as_bytes(std::span(&what, 1));
  const std::span<const std::byte> parts[] = {part};
  conversation.say(lane, header, parts);
}

// By feature.
PoolChoice::Poolings poolings_of(const RemotePlan& plan) {
  PoolChoice::Poolings poolings = plan.poolings;
  const std::size_t features = plan.features_of_tables.size();
  if (poolings.empty()) poolings.resize(features);
  if (poolings.size() != features || std::ranges::count(poolings, Pooling::sequence) > 0) {
    throw Error("poolings must be sum, mean, max or none, of each feature");
  }
  return poolings;
}

}  // namespace

// One batch's rows: of each table those of one server after those of another.
struct RemoteRows::RemoteBatch final : FoundRows {
  RemoteBatch(std::size_t tables, std::size_t features, std::size_t servers)
      : FoundRows(tables, features),
        parts(servers),
        first(tables),
        shown(tables),
        ranks(tables),
        spots(tables),
        pointers(tables),
        gradients(tables),
        rows(tables) {}

  struct Part {
    std::vector<std::uint64_t> ask;  // LookupHead, counts, ids
    std::size_t next = 0;            // where the next id goes
    std::vector<std::byte> pools;    // that are asked for
    AlignedArray<float> values;
    std::size_t floats = 0;                          // of these, and of the gradients
    std::size_t bytes = 0;                           // of the values, with what is told of winners
    bool there = false;                              // the rows
    std::uint64_t boot = 0;                          // of the server that has them under the ticket
    std::vector<std::span<const std::byte>> pushed;  // where the gradients lie, behind their head
    PushHead head{};
  };
  std::vector<Part> parts;           // by server
  std::vector<std::size_t> earlier;  // by table: ids of features that are not pooled
  // By table and server, behind them the count: of ids, and of those whose rows are shown.
  std::vector<std::vector<std::uint32_t>> first, shown;
  // Of tables that are not whole, by distinct id: its server, and in the end its place among what
  // is shown; and where pools find it.
  std::vector<std::vector<std::uint32_t>> ranks;
  std::vector<std::vector<AskedPool::Spot>> spots;
  std::vector<std::vector<const float*>> pointers;
  std::vector<AlignedArray<float>> gradients;
  std::vector<TableRows> rows;
  std::vector<bool> pooled;      // by feature; empty: none is
  std::vector<AskedPool> pools;  // of those that are
  std::vector<IdColumn> columns;
  std::vector<AskedPool::Reply> replies;  // by server
  std::uint64_t ticket = 0;
  std::size_t size = 0;  // examples
  bool asked = false;
  std::size_t under_way = 0;  // operations that use it

  bool there() const { return std::ranges::all_of(parts, &Part::there); }
};

// The batch that an engine's BatchRows stands for now: while the push of one is under way it stands
// for another.
struct RemoteRows::Held final : BatchRows {
  std::unique_ptr<RemoteBatch> batch;
};

// What is to be said to a server, and answered.
struct RemoteRows::Operation {
  enum class Kind : std::uint8_t { look, read, again, push, drop };
  Kind kind;
  RemoteBatch* batch;  // null: of a drop
  std::uint64_t ticket;
  std::uint64_t number = 0;  // of a push
  bool said = false;         // over the connection that there is
};

struct RemoteRows::Lane {
  enum class State : std::uint8_t { away, hello, open } state = State::away;
  std::deque<Operation> operations;  // in their order, which are not over
  RowHello hello{};
  RowWelcome welcome{};
  Settled settled{};
  RowDrop drop{};
  std::uint64_t boot = 0;     // of the server, as it was last
  std::uint64_t applied = 0;  // the last push that it has said to be
  double heard = 0;           // when; or when it was asked something first
  std::string why = "it has not been reached";
  std::vector<std::pair<std::uint64_t, std::uint64_t>> lost;      // pushes: after one, to another
  std::vector<std::pair<std::uint64_t, std::uint64_t>> left_out;  // likewise: that rows have not

  void leave_out(std::uint64_t push) {
    if (!left_out.empty() && left_out.back().second + 1 == push) {
      left_out.back().second = push;
    } else {
      left_out.emplace_back(push - 1, push);
    }
  }

  // Calls f(begin, end) for those of the pushes after one, to another, that are left out.
  template <class F>
  void each_left_out(std::uint64_t after, std::uint64_t to, const F& f) const {
    for (std::size_t i = left_out.size(); i-- > 0 && left_out[i].second > after;) {
      const std::uint64_t begin = std::max(after, left_out[i].first);
      if (const std::uint64_t end = std::min(to, left_out[i].second); begin < end) f(begin, end);
    }
  }

  // Pushes after one, to another, are lost; of those that were not before calls f(after, to).
  template <class F>
  void lose(std::uint64_t after, std::uint64_t to, const F& f) {
    std::uint64_t begin = after, end = to;
    while (!lost.empty() && lost.back().second > after) {
      const auto before = lost.back();
      lost.pop_back();
      f(before.second, end);
      end = std::max(before.first, after);
      begin = std::min(begin, before.first);
    }
    f(after, end);
    lost.emplace_back(begin, to);
  }
};

struct alignas(kCacheLine) RemoteRows::Slot {
  Slot(std::size_t servers, std::uint64_t of) : client(of), conversation(servers), lanes(servers) {}

  const std::uint64_t client;
  Conversation conversation;
  std::vector<Lane> lanes;
  Combiner combiner;
  // Of a push that may be under way, while the batch behind it is in hand; null: there was none.
  std::unique_ptr<RemoteBatch> pushed_last;
  std::uint64_t tickets = 0, pushes = 0;  // so far
  // Of pushes from a number on, the examples of each; of the last ones there is no other after it.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> sizes;
  std::vector<std::uint64_t> held;  // tickets that are neither pushed nor dropped
  double stopped = 0;               // when it has seen that the run is; 0: it has not
  RowPublication publication;       // of what was settled since it was told last
  std::vector<std::size_t> waiting;
  // Relaxed: for whoever looks on.
  std::atomic<bool> left{false};
  // Release by the worker, acquire by who looks on: all of its pushes are applied by then.
  std::atomic<bool> quiet{true};
  std::atomic<std::uint64_t> lookups{0}, reads{0}, rows{0}, examples{0}, least_bytes{0},
      row_bytes{0}, pools{0}, pushed{0}, settled{0}, not_finite{0}, expired{0}, lost{0},
      lost_examples{0}, unsettled{0}, cuts{0}, waited{0}, settling{0};

  // A server has told of a push what became of it.
  void settle(Lane& lane, std::uint64_t push, Settling how) {
    settled.fetch_add(1, kRelaxed);
    if (how == Settling::applied) return;
    lane.leave_out(push);
    if (how == Settling::not_finite) not_finite.fetch_add(1, kRelaxed);
    if (how == Settling::expired) expired.fetch_add(1, kRelaxed);
  }
  void note(std::uint64_t push, std::uint64_t examples) {
    if (sizes.empty() || sizes.back().second != examples) sizes.emplace_back(push, examples);
  }
  // Of the pushes after one, to another.
  std::uint64_t examples_of(std::uint64_t after, std::uint64_t to) const {
    std::uint64_t sum = 0;
    for (std::size_t i = sizes.size(); i-- > 0 && to > after;) {
      const auto [from, examples] = sizes[i];
      if (from > to) continue;
      sum += (to - std::max(after, from - 1)) * examples;
      to = from - 1;
    }
    return sum;
  }
};

struct RemoteRows::Wait {
  double seconds;
  double once_stopped;                             // no longer than these once the run is
  const std::function<bool()>* keep_on = nullptr;  // in place of that
};

RemoteRows::RemoteRows(RemotePlan plan)
    : plan_(std::move(plan)), choice_(plan_.pooling, poolings_of(plan_)) {
  if (plan_.placement.tables() != plan_.tables.size()) {
    throw Error("the placement is of " + std::to_string(plan_.placement.tables()) +
                " tables, and there are " + std::to_string(plan_.tables.size()));
  }
  if (plan_.look_ahead > 1) throw Error("look_ahead must be 0 or 1");
  if (plan_.workers == 0 || plan_.readers == 0 || plan_.servers == 0) {
    throw Error("workers, readers and servers must be 1 at least");
  }
  for (const std::size_t table : plan_.features_of_tables) {
    if (table >= plan_.tables.size()) throw Error("a feature is of a table that there is not");
  }
  for (std::size_t s = 0; s < plan_.servers; ++s) {
    RowDigest digest;
    auto& tables = tables_of_.emplace_back();
    for (std::size_t t = 0; t < plan_.tables.size(); ++t) {
      const RowPlacement::Shards shards = plan_.placement.shards(t, s);
      if (shards.none()) continue;
      tables.push_back(t);
      digest.add(t, plan_.tables[t], shards);
    }
    digests_.push_back(digest.value());
  }
  for (std::size_t t = 0; t < plan_.tables.size(); ++t) {
    std::size_t shards = 0;
    whole_.emplace_back();
    for (std::size_t s = 0; s < plan_.servers; ++s) {
      const RowPlacement::Shards of = plan_.placement.shards(t, s);
      shards += of.count();
      if (of.all()) whole_[t] = s;
    }
    if (shards != RowPlacement::kShards) {
      throw Error("rows of table '" + plan_.tables[t].name + "' are at a server that there is not");
    }
  }
  for (const ServedTable& table : plan_.tables) {
    zeros_.resize(std::max(zeros_.size(), table.dim), 0.0f);
  }
  for (std::size_t s = 0; s < slots(); ++s) {
    slots_.push_back(std::make_unique<Slot>(plan_.servers, plan_.client + s));
  }
}

RemoteRows::~RemoteRows() = default;

bool RemoteRows::adopt(std::size_t slot, std::size_t server, int socket, bool checked,
                       Transport wish, double patience) {
  Slot& to = *slots_.at(slot);
  if (server >= plan_.servers) throw Error("a server that there is not");
  auto connection = connected(socket, kRowLimits, checked, wish, Role::offers);
  if (patience > 0 && !answers(*connection, patience)) return false;
  to.conversation.adopt(server, std::move(connection));
  return true;
}

bool RemoteRows::missing(std::size_t slot, std::size_t server) const {
  const Slot& of = *slots_.at(slot);
  return serves(server) && !of.left.load(kRelaxed) && !of.conversation.there(server);
}

std::unique_ptr<BatchRows> RemoteRows::make_batch() const {
  auto held = std::make_unique<Held>();
  held->batch = make();
  return held;
}

std::unique_ptr<RemoteRows::RemoteBatch> RemoteRows::make() const {
  return std::make_unique<RemoteBatch>(plan_.tables.size(), plan_.features_of_tables.size(),
                                       plan_.servers);
}

RemoteRows::RemoteBatch& RemoteRows::fresh(Slot& slot, Held& held) {
  if (held.batch->under_way > 0) {
    if (!slot.pushed_last) slot.pushed_last = make();
    finish(slot, *slot.pushed_last);
    held.batch.swap(slot.pushed_last);
  }
  return *held.batch;
}

void RemoteRows::follow(const std::atomic<bool>& stopped) { stopped_ = &stopped; }

void RemoteRows::combine(Slot& slot, const BatchView& batch, RemoteBatch& rows, bool trains) {
  const PoolChoice::Poolings* const poolings = choice_.decided();
  if (poolings && rows.pooled.empty()) {
    for (std::size_t f = 0; f < poolings->size(); ++f) {
      const std::size_t t = plan_.features_of_tables[f];
      rows.pooled.push_back((*poolings)[f].has_value());
      if (!rows.pooled[f]) continue;
      rows.pools.emplace_back(f, t, plan_.tables[t].dim, *(*poolings)[f], plan_.servers, whole_[t]);
    }
    rows.replies.resize(plan_.servers);
  }
  combine_batch(plan_.features_of_tables, batch, slot.combiner, rows, rows.pooled, rows.earlier);
  rows.size = batch.size;
  for (std::size_t t = 0; t < plan_.tables.size(); ++t) {
    const ServedTable& table = plan_.tables[t];
    for (const std::uint64_t id : rows.located[t].ids) {
      if (table.rows == 0 || id < table.rows) continue;
      throw Error("id " + std::to_string(static_cast<std::int64_t>(id)) + " is no row of table '" +
                  table.name + "', which has rows 0 to " + std::to_string(table.rows - 1));
    }
  }
  share_out(rows);
  if (trains && !poolings) weigh(batch, rows);
  find_places(rows);
  for (std::size_t f = 0; f < plan_.features_of_tables.size(); ++f) {
    if (whole_[plan_.features_of_tables[f]] || (!rows.pooled.empty() && rows.pooled[f])) continue;
    const std::vector<std::uint32_t>& ranks = rows.ranks[plan_.features_of_tables[f]];
    for (std::uint32_t& place : rows.entries[f]) place = ranks[place];
  }
  if (!rows.pools.empty()) find_pools(batch, rows);
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
      throw Error("a batch of " + std::to_string(rows.size) + " examples takes " +
                  std::to_string(bytes >> 20) + " MiB of " + what + " at embedding server " +
                  std::to_string(s) + ", and a frame has " +
                  std::to_string(kRowLimits[kind] >> 20) + ": give a smaller batch_size" +
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

void RemoteRows::look_up(Slot& slot, RemoteBatch& rows, bool trains) {
  check_size(rows);
  rows.asked = true;
  rows.ticket = ++slot.tickets;
  std::uint64_t count = 0, bytes = 0, pools = 0, of_rows = 0;
  for (std::size_t s = 0; s < plan_.servers; ++s) {
    if (!serves(s)) {
      rows.parts[s].there = true;
      continue;
    }
    std::size_t pools = 0;
    for (const AskedPool& pool : rows.pools) pools += pool.pools_of(s) > 0 ? 1 : 0;
    const LookupHead head{trains ? 1U : 0U, static_cast<std::uint32_t>(tables_of_[s].size()),
                          static_cast<std::uint32_t>(pools), rows.pools.empty() ? 0U : 1U};
    std::memcpy(rows.parts[s].ask.data(), &head, sizeof head);
    using Kind = Operation::Kind;
    slot.lanes[s].operations.push_back({trains ? Kind::look : Kind::read, &rows, rows.ticket});
    ++rows.under_way;
  }
  // An id, its row, and of a batch that trains the row's gradient.
  const std::size_t each = trains ? 8 : 4;
  for (std::size_t t = 0; t < plan_.tables.size(); ++t) {
    const std::size_t ids = rows.located[t].ids.size(), dim = plan_.tables[t].dim;
    count += ids;
    of_rows += ids * (8 + each * dim);
    bytes += ids * 8 + rows.shown[t][plan_.servers] * each * dim;
  }
  for (const AskedPool& pool : rows.pools) {
    bytes += pool.entry_bytes();
    pools += pool.count();
    for (std::size_t s = 0; s < plan_.servers; ++s) bytes += each * pool.floats_of(s);
  }
  slot.least_bytes.fetch_add(bytes, kRelaxed);
  slot.row_bytes.fetch_add(of_rows, kRelaxed);
  if (!trains) {
    slot.reads.fetch_add(1, kRelaxed);
    return;
  }
  slot.held.push_back(rows.ticket);
  slot.lookups.fetch_add(1, kRelaxed);
  slot.rows.fetch_add(count, kRelaxed);
  slot.pools.fetch_add(pools, kRelaxed);
  slot.examples.fetch_add(rows.size, kRelaxed);
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

void RemoteRows::prefetch(std::size_t worker, const BatchView& batch, BatchRows& rows) {
  Slot& slot = *slots_[worker];
  slot.quiet.store(false, kRelaxed);
  RemoteBatch& remote = fresh(slot, static_cast<Held&>(rows));
  combine(slot, batch, remote, true);
  remote.asked = false;
  if (plan_.look_ahead > 0) look_up(slot, remote, true);
  step(slot);
}

void RemoteRows::pull(std::size_t worker, BatchView& batch, BatchRows& rows) {
  Slot& slot = *slots_[worker];
  RemoteBatch& remote = *static_cast<Held&>(rows).batch;
  if (!remote.asked) look_up(slot, remote, true);
  const double begin = now();
  if (!wait(slot, {plan_.patience, 0}, [&remote] { return remote.there(); })) fill_in(remote);
  count_since(begin, slot.waited);
  for (std::size_t t = 0; t < plan_.tables.size(); ++t) {
    std::fill_n(remote.gradients[t].data(), remote.rows[t].count * remote.rows[t].stride, 0.0f);
    remote.rows[t].gradient = remote.gradients[t].data();
  }
  show(remote, batch);
}

RowPublication RemoteRows::push(std::size_t worker, BatchRows& rows, const RowStep& /*step*/) {
  Slot& slot = *slots_[worker];
  RemoteBatch& remote = *static_cast<Held&>(rows).batch;
  const std::uint64_t number = ++slot.pushes;
  slot.pushed.fetch_add(1, kRelaxed);
  slot.note(number, remote.size);
  std::erase(slot.held, remote.ticket);
  for (AskedPool& pool : remote.pools) {
    const std::size_t dim = plan_.tables[pool.table].dim;
    if (!pool.whole) pool.split(remote.gradients[pool.table].data() + pool.first() * dim);
  }
  for (std::size_t s = 0; s < plan_.servers; ++s) {
    if (!serves(s)) continue;
    remote.parts[s].head = {number};
    slot.lanes[s].operations.push_back({Operation::Kind::push, &remote, remote.ticket, number});
    ++remote.under_way;
  }
  step(slot);
  return std::exchange(slot.publication, {});
}

void RemoteRows::settle(std::size_t worker) {
  Slot& slot = *slots_[worker];
  while (step(slot)) {
  }
  const bool quiet =
      std::ranges::all_of(slot.lanes, [](const Lane& lane) { return lane.operations.empty(); });
  slot.quiet.store(quiet, std::memory_order_release);
}

bool RemoteRows::settled() const {
  return std::all_of(slots_.begin(), slots_.begin() + static_cast<std::ptrdiff_t>(plan_.workers),
                     [](const auto& slot) { return slot->quiet.load(std::memory_order_acquire); });
}

void RemoteRows::drop(std::size_t worker, BatchRows& rows) {
  Slot& slot = *slots_[worker];
  RemoteBatch& remote = *static_cast<Held&>(rows).batch;
  if (!std::exchange(remote.asked, false)) return;
  let_go(slot, remote.ticket);
  step(slot);
}

void RemoteRows::let_go(Slot& slot, std::uint64_t ticket) {
  std::erase(slot.held, ticket);
  for (std::size_t s = 0; s < plan_.servers; ++s) {
    if (!serves(s)) continue;
    slot.lanes[s].operations.push_back({Operation::Kind::drop, nullptr, ticket});
  }
}

RowPublication RemoteRows::leave(std::size_t worker) {
  Slot& slot = *slots_[worker];
  const double begin = now();
  while (!slot.held.empty()) let_go(slot, slot.held.back());  // what was looked up ahead
  const auto over = [&slot] {
    return std::ranges::all_of(slot.lanes,
                               [](const Lane& lane) { return lane.operations.empty(); });
  };
  try {
    wait(slot, {plan_.patience, kLastWords}, over);
  } catch (const std::exception&) {  // what is left is counted
  }
  for (std::size_t s = 0; s < plan_.servers; ++s) {
    abandon(slot, s, [](const Operation&) { return true; });
    slot.conversation.drop(s);
  }
  slot.left.store(true, kRelaxed);
  count_since(begin, slot.settling);
  return std::exchange(slot.publication, {});
}

void RemoteRows::read(std::size_t reader, BatchView& batch, BatchRows& rows,
                      const std::function<bool()>& keep_on) {
  Slot& slot = *slots_[plan_.workers + reader];
  RemoteBatch& remote = *static_cast<Held&>(rows).batch;
  finish(slot, remote);
  combine(slot, batch, remote, false);
  look_up(slot, remote, false);
  try {
    if (!wait(slot, {plan_.patience, plan_.patience, keep_on ? &keep_on : nullptr},
              [&remote] { return remote.there(); })) {
      forget(slot, remote, "what was to be read is wanted no more");
      fill_in(remote);
    }
  } catch (...) {
    forget(slot, remote, "what was to be read is wanted no more");
    throw;
  }
  for (TableRows& each : remote.rows) each.gradient = nullptr;
  show(remote, batch);
}

void RemoteRows::finish(Slot& slot, const RemoteBatch& rows) {
  if (rows.under_way == 0) return;
  const double begin = now();
  if (!wait(slot, {plan_.patience, kLastWords}, [&rows] { return rows.under_way == 0; })) {
    forget(slot, rows, "the run was stopped");
  }
  count_since(begin, slot.settling);
}

// The batch's memory is wanted: nobody hears any more what becomes of it.
void RemoteRows::forget(Slot& slot, const RemoteBatch& rows, const std::string& why) {
  for (std::size_t s = 0; s < plan_.servers; ++s) {
    const auto of = [&rows](const Operation& each) { return each.batch == &rows; };
    if (std::ranges::none_of(slot.lanes[s].operations, of)) continue;
    cut(slot, s, why);
    abandon(slot, s, of);
  }
}

template <class Which>
void RemoteRows::abandon(Slot& slot, std::size_t server, const Which& which) {
  std::erase_if(slot.lanes[server].operations, [&](const Operation& each) {
    if (!which(each)) return false;
    if (each.batch) --each.batch->under_way;
    if (each.kind == Operation::Kind::push) slot.unsettled.fetch_add(1, kRelaxed);
    return true;
  });
}

template <class Done>
bool RemoteRows::wait(Slot& slot, const Wait& how, const Done& done) {
  const double begin = now();
  Deadline deadline = Deadline::in(how.seconds);
  bool fresh = true, stopped = false;
  for (;;) {
    const bool something = step(slot);
    if (done()) break;
    if (how.keep_on) {
      if (!(*how.keep_on)()) return false;
    } else if (!stopped && stopped_ && stopped_->load(kRelaxed)) {
      stopped = true;
      if (slot.stopped == 0) slot.stopped = now();
      deadline.at = std::min(deadline.at, slot.stopped + how.once_stopped);
    }
    if (now() >= deadline.at) {
      if (stopped) return false;
      give_up(slot, now() - begin);
    }
    if (something) continue;
    if (plan_.idle) {
      plan_.idle();
      continue;
    }
    slot.waiting.clear();
    for (std::size_t s = 0; s < plan_.servers; ++s) {
      Lane& lane = slot.lanes[s];
      if (lane.operations.empty() && lane.state == Lane::State::open) continue;
      if (!slot.conversation.has(s)) continue;
      if (fresh) lane.heard = std::max(lane.heard, begin);
      if (now() - lane.heard > plan_.timeout) {
        cut(slot, s, "it has been silent");
      } else {
        slot.waiting.push_back(s);
      }
    }
    fresh = false;
    const bool away = std::ranges::any_of(slot.lanes, [&](const Lane& lane) {
      return lane.state == Lane::State::away && !lane.operations.empty();
    });
    // Of one that is away nothing comes to wake us.
    if (away) {
      std::this_thread::sleep_for(kAway);
    } else if (!slot.waiting.empty()) {
      try {
        slot.conversation.wait(slot.waiting, deadline);
      } catch (const ConnectionError&) {  // late: looked at above
      }
    }
  }
  slot.conversation.count();
  return true;
}

void RemoteRows::give_up(const Slot& slot, double seconds) const {
  std::string whom;
  for (std::size_t s = 0; s < plan_.servers; ++s) {
    const Lane& lane = slot.lanes[s];
    if (lane.operations.empty()) continue;
    if (!whom.empty()) whom += "; ";
    whom += "embedding server " + std::to_string(s);
    if (lane.state != Lane::State::open) whom += " (" + lane.why + ")";
  }
  throw Error(whom + " has not answered for " + std::to_string(static_cast<int>(seconds)) +
              " s, and training cannot go on without its rows: start it again, or allow it more "
              "patience");
}

bool RemoteRows::step(Slot& slot) {
  bool something = false;
  for (std::size_t s = 0; s < plan_.servers; ++s) {
    if (serves(s)) something |= step(slot, s);
  }
  return something;
}

bool RemoteRows::step(Slot& slot, std::size_t server) {
  Lane& lane = slot.lanes[server];
  bool something = false;
  if (slot.conversation.renew(server)) {
    for (Operation& each : lane.operations) each.said = false;
    lane.state = Lane::State::hello;
    lane.hello = {slot.client, plan_.life, digests_[server]};
    lane.heard = now();
    something = true;
    try {
      say_one(slot.conversation, server, {.kind = kRowHello}, lane.hello);
    } catch (const std::exception& error) {
      cut(slot, server, error.what());
    }
  }
  if (!slot.conversation.has(server)) return something;
  try {
    while (slot.conversation.free(server) && lane.state == Lane::State::open) {
      const auto next =
          std::ranges::find_if(lane.operations, [](const Operation& each) { return !each.said; });
      if (next == lane.operations.end()) break;
      if (next->kind == Operation::Kind::push &&
          next->batch->parts[server].boot != lane.boot) {  // the one that had its rows is gone
        ++next->batch->under_way;
        const Operation again{Operation::Kind::again, next->batch, next->ticket};
        lane.operations.insert(next, again);
        continue;
      }
      if (std::ranges::none_of(lane.operations, &Operation::said)) lane.heard = now();
      say(slot, server, *next);
      next->said = true;
      something = true;
      if (next->kind == Operation::Kind::drop) lane.operations.erase(next);
    }
    while (hear(slot, server)) something = true;
  } catch (const std::exception& error) {
    cut(slot, server, error.what());
  }
  return something;
}

void RemoteRows::say(Slot& slot, std::size_t server, Operation& operation) {
  Lane& lane = slot.lanes[server];
  using Kind = Operation::Kind;
  if (operation.kind == Kind::drop) {
    return say_one(slot.conversation, server, {.kind = kDropRows, .correlation = operation.ticket},
                   lane.drop);
  }
  RemoteBatch::Part& part = operation.batch->parts[server];
  if (operation.kind == Kind::push) {
    return slot.conversation.say(server, {.kind = kPushRows, .correlation = operation.ticket},
                                 part.pushed);
  }
  const auto ask = std::as_bytes(std::span(part.ask));
  const std::span<const std::byte> parts[] = {ask, part.pools};
  slot.conversation.say(server, {.kind = kLookup, .correlation = operation.ticket}, parts);
}

bool RemoteRows::hear(Slot& slot, std::size_t server) {
  Lane& lane = slot.lanes[server];
  using Kind = Operation::Kind;
  const auto wrong = [] {
    return Error("an embedding server has answered something else than was asked");
  };
  const auto place = [&](const FrameHeader& header) -> std::span<std::byte> {
    if (lane.state == Lane::State::hello) {
      if (header.kind != kRowWelcome || header.length != sizeof lane.welcome) throw wrong();
      return std::as_writable_bytes(std::span(&lane.welcome, 1));
    }
    if (lane.operations.empty() || !lane.operations.front().said) throw wrong();
    const Operation& asked = lane.operations.front();
    if (header.correlation != asked.ticket) throw wrong();
    if (asked.kind == Kind::push) {
      if (header.kind != kSettled || header.length != sizeof lane.settled) throw wrong();
      return std::as_writable_bytes(std::span(&lane.settled, 1));
    }
    RemoteBatch::Part& part = asked.batch->parts[server];
    if (header.kind != kRows || header.length != part.bytes) throw wrong();
    return {reinterpret_cast<std::byte*>(part.values.data()), part.bytes};
  };
  const auto header = slot.conversation.hear(server, place);
  if (!header) return false;
  lane.heard = now();
  if (lane.state == Lane::State::hello) return welcomed(slot, server), true;
  const Operation over = lane.operations.front();
  RemoteBatch::Part& part = over.batch->parts[server];
  if (over.kind == Kind::push) {
    if (lane.settled.applied < over.number || lane.settled.settling > Settling::expired) {
      throw wrong();
    }
    lane.applied = std::max(lane.applied, over.number);
    slot.settle(lane, over.number, lane.settled.settling);
    slot.publication.add(lane.settled.publication);
  } else {
    if (!makes_sense(*over.batch, server)) throw wrong();
    part.there = true;
    part.boot = lane.boot;
  }
  lane.operations.pop_front();
  --over.batch->under_way;
  return true;
}

// What is known of the server now. The one that there was is asked once more what became of the
// pushes whose answers were lost; another one has those up to the last that it tells, with what
// became of them.
void RemoteRows::welcomed(Slot& slot, std::size_t server) {
  Lane& lane = slot.lanes[server];
  const std::uint64_t before = lane.boot, applied = lane.welcome.applied;
  const auto& outcomes = lane.welcome.outcomes;
  const auto there = [applied](const Operation& each) {
    return each.kind == Operation::Kind::push && each.number <= applied;
  };
  if (before == lane.welcome.boot) {
    lane.state = Lane::State::open;
    return;
  }
  for (const Operation& each : lane.operations) {
    if (!there(each) || outcomes[applied - each.number]) continue;
    throw Error("an embedding server does not say what became of a push that it has");
  }
  lane.state = Lane::State::open;
  lane.boot = lane.welcome.boot;
  if (before != 0 && applied < lane.applied) {
    lane.lose(applied, lane.applied, [&](std::uint64_t after, std::uint64_t to) {
      std::uint64_t pushes = to - after, examples = slot.examples_of(after, to);
      lane.each_left_out(after, to, [&](std::uint64_t begin, std::uint64_t end) {
        pushes -= end - begin;
        examples -= slot.examples_of(begin, end);
      });
      slot.lost.fetch_add(pushes, kRelaxed);
      slot.lost_examples.fetch_add(examples, kRelaxed);
    });
  }
  lane.applied = applied;
  std::erase_if(lane.operations, [&](const Operation& each) {
    if (!there(each)) return false;
    --each.batch->under_way;
    slot.settle(lane, each.number, *outcomes[applied - each.number]);
    return true;
  });
}

void RemoteRows::cut(Slot& slot, std::size_t server, const std::string& why) {
  Lane& lane = slot.lanes[server];
  lane.state = Lane::State::away;
  lane.why = why;
  // A batch whose rows were to be looked up once more is, where its push is said.
  std::erase_if(lane.operations, [](const Operation& each) {
    if (each.kind == Operation::Kind::again) --each.batch->under_way;
    return each.kind == Operation::Kind::again;
  });
  for (Operation& each : lane.operations) each.said = false;
  slot.cuts.fetch_add(1, kRelaxed);
  slot.conversation.drop(server);
}

std::optional<std::vector<bool>> RemoteRows::pooled() const {
  const PoolChoice::Poolings* const poolings = choice_.decided();
  if (!poolings) return std::nullopt;
  std::vector<bool> found;
  for (const auto& one : *poolings) found.push_back(one.has_value());
  return found;
}

RemoteRows::Counters RemoteRows::counters() const {
  Counters all;
  all.kernel.emplace();
  for (const auto& slot : slots_) {
    all.lookups += slot->lookups.load(kRelaxed);
    all.reads += slot->reads.load(kRelaxed);
    all.rows += slot->rows.load(kRelaxed);
    all.examples += slot->examples.load(kRelaxed);
    all.least_bytes += slot->least_bytes.load(kRelaxed);
    all.row_bytes += slot->row_bytes.load(kRelaxed);
    all.pools += slot->pools.load(kRelaxed);
    all.pushes += slot->pushed.load(kRelaxed);
    all.settled += slot->settled.load(kRelaxed);
    all.not_finite += slot->not_finite.load(kRelaxed);
    all.expired += slot->expired.load(kRelaxed);
    all.lost += slot->lost.load(kRelaxed);
    all.lost_examples += slot->lost_examples.load(kRelaxed);
    all.unsettled += slot->unsettled.load(kRelaxed);
    all.cuts += slot->cuts.load(kRelaxed);
    all.seconds += static_cast<double>(slot->waited.load(kRelaxed)) * 1e-9;
    all.settling += static_cast<double>(slot->settling.load(kRelaxed)) * 1e-9;
    const Traffic own = slot->conversation.traffic().own();
    all.traffic.out += own.out;
    all.traffic.in += own.in;
    const std::optional<Traffic> kernel = slot->conversation.traffic().kernel();
    if (!kernel) all.kernel.reset();
    if (!all.kernel) continue;
    all.kernel->out += kernel->out;
    all.kernel->in += kernel->in;
  }
  return all;
}

}  // namespace leashed
