#include "leashed/cluster/remote_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "leashed/base/clock.h"
#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/cluster/remote_lanes.h"

namespace leashed {
namespace {

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

RemoteRows::RemoteRows(RemotePlan plan)
    : plan_(std::move(plan)), choice_(plan_.pooling, poolings_of(plan_)) {
  if (plan_.placement.tables() != plan_.tables.size()) {
    throw Error("the placement is of " + std::to_string(plan_.placement.tables()) +
                " tables, and there are " + std::to_string(plan_.tables.size()));
  }
  if (plan_.look_ahead > kMostAhead) {
    throw Error("look_ahead must be at most " + std::to_string(kMostAhead) + " batches, got " +
                std::to_string(plan_.look_ahead));
  }
  if (plan_.workers == 0 || (plan_.readers == 0 && !plan_.apart) || plan_.servers == 0) {
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
    slots_.push_back(make_slot(s));
  }
  if (plan_.apart) stopped_ = &forsaken_;
}

RemoteRows::~RemoteRows() = default;

std::unique_ptr<RemoteRows::Slot> RemoteRows::make_slot(std::size_t number) const {
  std::optional<std::size_t> table;
  if (plan_.apart) table = number % plan_.tables.size();
  return std::make_unique<Slot>(plan_.servers, plan_.client + number, table);
}

bool RemoteRows::serves(const Slot& slot, std::size_t server) const {
  const std::vector<std::size_t>& tables = tables_of_[server];
  return slot.table ? std::ranges::count(tables, *slot.table) > 0 : !tables.empty();
}

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
  return of.wanted.load(kRelaxed) && serves(of, server) && !of.left.load(kRelaxed) &&
         !of.conversation.there(server);
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
  if (held.batch->under_way == 0) return *held.batch;
  auto& pushed = slot.pushed_before;
  if (pushed.size() < ahead()) {
    pushed.push_back(make());
  } else {
    finish(slot, *pushed.front());
    std::ranges::rotate(pushed, pushed.begin() + 1);
  }
  held.batch.swap(pushed.back());
  return *held.batch;
}

void RemoteRows::expect() { expected_.store(now(), kRelaxed); }

void RemoteRows::forsake() {
  double never = 0;
  forsaken_at_.compare_exchange_strong(never, now(), kRelaxed);
  forsaken_.store(true, kRelaxed);
}

void RemoteRows::follow(const std::atomic<bool>& stopped) { stopped_ = &stopped; }

void RemoteRows::look_up(Slot& slot, RemoteBatch& rows, bool trains) {
  check_size(rows);
  rows.asked = true;
  rows.ticket = ++slot.tickets;
  std::uint64_t count = 0, bytes = 0, pools = 0, of_rows = 0;
  for (std::size_t s = 0; s < plan_.servers; ++s) {
    if (!serves(slot, s)) {
      rows.parts[s].there = true;
      continue;
    }
    std::uint32_t how = trains ? 1 : 0;
    if (trains && slot.table) {
      const auto place = std::ranges::find(tables_of_[s], *slot.table) - tables_of_[s].begin();
      how = kOfOne + static_cast<std::uint32_t>(place);
    }
    std::size_t pools = 0;
    for (const AskedPool& pool : rows.pools) pools += pool.pools_of(s) > 0 ? 1 : 0;
    const LookupHead head{how, static_cast<std::uint32_t>(tables_of_[s].size()),
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

void RemoteRows::prefetch(std::size_t worker, const BatchView& batch, BatchRows& rows) {
  Slot& slot = *slots_[worker];
  slot.wanted.store(true, kRelaxed);
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
  Slot::count_since(begin, slot.waited);
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
  std::erase(slot.held, remote.ticket);
  for (AskedPool& pool : remote.pools) {
    const std::size_t dim = plan_.tables[pool.table].dim;
    if (!pool.whole) pool.split(remote.gradients[pool.table].data() + pool.first() * dim);
  }
  for (std::size_t s = 0; s < plan_.servers; ++s) {
    if (!serves(slot, s)) continue;
    remote.parts[s].head = {number, remote.size};
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

void RemoteRows::read(std::size_t reader, BatchView& batch, BatchRows& rows,
                      const std::function<bool()>& keep_on) {
  read(*slots_[plan_.workers + reader], batch, *static_cast<Held&>(rows).batch,
       {plan_.patience, plan_.patience, keep_on ? &keep_on : nullptr});
}

bool RemoteRows::look(std::size_t worker, BatchView& batch, BatchRows& rows) {
  Slot& slot = *slots_[worker];
  slot.wanted.store(true, kRelaxed);
  return read(slot, batch, *static_cast<Held&>(rows).batch, {plan_.patience, 0});
}

bool RemoteRows::read(Slot& slot, BatchView& batch, RemoteBatch& rows, const Wait& how) {
  finish(slot, rows);
  combine(slot, batch, rows, false);
  look_up(slot, rows, false);
  bool there = false;
  try {
    there = wait(slot, how, [&rows] { return rows.there(); });
    if (!there) {
      forget(slot, rows, "what was to be read is wanted no more");
      fill_in(rows);
    }
  } catch (...) {
    forget(slot, rows, "what was to be read is wanted no more");
    throw;
  }
  for (TableRows& each : rows.rows) each.gradient = nullptr;
  show(rows, batch);
  return there;
}

RowPublication RemoteRows::told(std::size_t worker) {
  return std::exchange(slots_[worker]->publication, {});
}

void RemoteRows::watch(std::size_t worker, const std::function<bool()>* watch) {
  slots_[worker]->watch = watch;
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
  WireSum wire;
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
    wire.add(slot->conversation.traffic());
  }
  all.traffic = wire.own;
  all.kernel = wire.kernel;
  return all;
}

}  // namespace leashed
