// Rows that are pulled where there is no memory left, wherever it is asked for: nothing is held
// then.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <numeric>
#include <span>
#include <vector>

#include "leashed/server/parameter_server.h"
#include "leashed/server/row_holder.h"
#include "leashed/update/registry.h"
#include "replaced_new.h"

namespace {

// Allocations until one fails; far away where none is to.
constexpr long kNever = 1L << 60;
std::atomic<long> allocations_left{kNever};  // relaxed: the tests that count have one thread

void allocating() {
  if (allocations_left.fetch_sub(1, std::memory_order_relaxed) == 0) throw std::bad_alloc();
}

}  // namespace

using namespace leashed;

namespace {

constexpr std::size_t kIds = 40;

std::vector<std::shared_ptr<Table>> tables_of_three() {
  std::vector<std::shared_ptr<Table>> tables;
  for (const char* name : {"a", "b", "c"}) {
    tables.push_back(std::make_shared<Table>(Table::Settings{.name = name,
                                                             .dim = 4,
                                                             .max_bytes = std::size_t{1} << 15,
                                                             .initial = {"uniform", {{"bound", 1}}},
                                                             .rule = {"sgd", {{"lr", 1}}},
                                                             .staleness = {"none"},
                                                             .admit_after = 1,
                                                             .evict = "age"}));
  }
  return tables;
}

// One feature of each table, of ids from `first` on.
struct Ids {
  explicit Ids(std::uint64_t first) : ids(kIds) {
    std::iota(ids.begin(), ids.end(), first);
    for (IdColumn& column : columns) column = {ids.data(), nullptr, nullptr};
    view.columns = columns;
  }
  std::vector<std::uint64_t> ids;
  IdColumn columns[3];
  BatchView view{nullptr, Targets(), kIds};
};

class Tickets final : public Sink {
 public:
  void grant(Grant grant) override { of[grant.node] = grant.lease.ticket; }
  void wake(Time) override {}
  void meet(std::span<const modes::Node>, modes::Node) override {}
  void end(modes::Node) override {}
  void settled(modes::Node, const Publication&) override {}

  std::uint64_t of[2] = {};
};

// Whether those ids' rows make room for others: not those that somebody holds.
bool makes_room(RowHolder& holder, const Ids& ids) {
  PulledRows pulled;
  for (std::uint64_t round = 1; round <= 50; ++round) {
    const Ids others(round * 1000);
    holder.pull(others.view, pulled);
    holder.release(pulled.keys);
  }
  return std::ranges::all_of(holder.tables(), [&](const auto& table) {
    const std::vector<std::uint64_t> live = table->ids();
    return std::ranges::none_of(
        ids.ids, [&](std::uint64_t id) { return std::ranges::find(live, id) != live.end(); });
  });
}

}  // namespace

TEST_CASE("a pull without memory holds nothing, whatever it had found by then") {
  bool by_ids = false;
  SUBCASE("of a batch") {}
  SUBCASE("of ids") { by_ids = true; }
  const Ids ids(1);
  const std::vector<std::span<const std::uint64_t>> distinct(3, ids.ids);
  std::vector<float> values(3 * kIds * 4);
  float* const to[] = {&values[0], &values[kIds * 4], &values[2 * kIds * 4]};
  RowHolder holder(tables_of_three(), {0, 1, 2});
  long failed = 0;
  for (bool through = false; !through; ++failed) {
    // As at its first pull: so that a batch's memory is asked for each time.
    auto pulled = std::make_unique<PulledRows>();
    allocations_left.store(failed, std::memory_order_relaxed);
    try {
      by_ids ? holder.pull(distinct, pulled->keys, to) : holder.pull(ids.view, *pulled);
      through = true;
    } catch (const std::bad_alloc&) {
    }
    allocations_left.store(kNever, std::memory_order_relaxed);
    CHECK(pulled->keys.parts.size() == (through ? 3 : 0));
    holder.release(pulled->keys);
  }
  CHECK(failed > 6);
  CHECK(makes_room(holder, ids));
}

TEST_CASE("rows make room when nobody holds them any more") {
  RowHolder holder(tables_of_three(), {0, 1, 2});
  const Ids ids(1);
  PulledRows kept, twice;
  holder.pull(ids.view, kept);
  holder.pull(ids.view, twice);
  CHECK_FALSE(makes_room(holder, ids));
  holder.release(kept.keys);
  CHECK_FALSE(makes_room(holder, ids));
  holder.release(twice.keys);
  CHECK(makes_room(holder, ids));
}

TEST_CASE("a pull that fails holds nothing, and what is pushed then lets go of its own rows") {
  auto tables = tables_of_three();
  Table::Settings fixed = tables[1]->settings();
  fixed.rows = 5000;
  fixed.max_bytes = 0;
  fixed.evict = "none";
  tables[1] = std::make_shared<Table>(fixed);
  RowHolder holder(tables, {0, 1, 2});
  const Ids ids(11), others(4990), more(111);
  PulledRows pulled, failed, again;
  holder.pull(ids.view, pulled);
  CHECK_THROWS_AS(holder.pull(others.view, failed), Error);
  const std::vector<float> gradients(3 * kIds * 16, 1.0f);
  holder.push(pulled.keys, gradients.data(), 0);
  holder.pull(ids.view, again);
  holder.pull(more.view, pulled);
  const auto live = [&](const Ids& of) {
    const std::vector<std::uint64_t> all = tables[0]->ids();
    return std::ranges::all_of(
        of.ids, [&](std::uint64_t id) { return std::ranges::find(all, id) != all.end(); });
  };
  std::vector<float> ones(4, 1);
  for (std::uint64_t id = 10000; id < 15000; ++id) tables[0]->update(&id, 1, ones.data(), nullptr);
  CHECK(live(ids));
  CHECK(live(more));
  holder.release(again.keys);
  holder.release(pulled.keys);
  for (std::uint64_t id = 20000; id < 25000; ++id) tables[0]->update(&id, 1, ones.data(), nullptr);
  const std::vector<std::uint64_t> all = tables[0]->ids();
  CHECK(std::ranges::none_of(all, [](std::uint64_t id) { return id > 0 && id < 20000; }));
}

TEST_CASE("who holds rows at the end of a holder does not any more") {
  const auto tables = tables_of_three();
  const Ids ids(1);
  PulledRows kept;
  {
    RowHolder holder(tables, {0, 1, 2});
    holder.pull(ids.view, kept);
  }
  RowHolder holder(tables, {0, 1, 2});
  CHECK(makes_room(holder, ids));
}

TEST_CASE("a push that comes twice lets go of its rows, and of no others") {
  for (const double b2 : {1, 2}) {
    CAPTURE(b2);
    RowHolder holder(tables_of_three(), {0, 1, 2});
    const Ids ids(1);
    const float initial = 0;
    const auto rule = make_rule({"sgd", {{"lr", 1}}});
    const DisciplineContext context{&initial, 1, 2, 1, *rule};
    ParameterServer server(
        modes::make_server_policy({"bsp", {{"workers", 2}, {"batch", kIds}, {"b2", b2}}}), context,
        &holder);
    Tickets sink;
    for (const modes::Node node : {0, 1}) {
      server.handle({modes::Event::Kind::pull, node}, nullptr, {0}, sink);
    }
    for (const modes::Node node : {0, 0, 1}) {
      PulledRows pulled;
      ShownRows shown;
      AlignedArray<float> values(1), gradients;
      BatchView view = ids.view;
      holder.pull(view, pulled);
      holder.show(pulled, view, shown, gradients);
      values[0] = 1;
      const Payload payload{&values, kIds, &pulled.keys, &gradients};
      server.handle({modes::Event::Kind::push, node, sink.of[node]}, &payload, {0}, sink);
    }
    CHECK(server.counts().late == kIds);
    CHECK(server.counts().rows.applied + server.counts().rows.folded == 2 * 3 * kIds);
    CHECK(makes_room(holder, ids));
  }
}

TEST_CASE("a push that is taken apart without memory holds what can be let go of") {
  const Ids ids(1);
  RowHolder holder(tables_of_three(), {0, 1, 2});
  const RowPlacement placement(
      std::vector<RowPlacement::PlacedTable>(3, {true, RowPlacement::kSpread}),
      RowPlacement::evenly(2));
  PulledRows pulled;
  const std::vector<float> gradients(3 * kIds * 16, 1.0f);
  long failed = 0;
  for (bool through = false; !through; ++failed) {
    holder.pull(ids.view, pulled);
    RowPush a, b;
    RowPush* pushes[] = {&a, &b};
    allocations_left.store(failed, std::memory_order_relaxed);
    try {
      holder.split(pulled.keys, gradients.data(), placement, pushes);
      through = true;
    } catch (const std::bad_alloc&) {
    }
    allocations_left.store(kNever, std::memory_order_relaxed);
    for (RowKeys* keys : {&pulled.keys, &a.keys, &b.keys}) holder.release(*keys);
  }
  CHECK(failed > 6);
  CHECK(makes_room(holder, ids));
}
