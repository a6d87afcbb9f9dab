// The rows of batches by workers: places, duplicates, shared tables and empty bags beside a plain
// sum over entries; lockstep beside sums in the order of the workers.
#include <doctest/doctest.h>

#include <array>
#include <barrier>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/row_store/local_rows.h"

using namespace leashed;

namespace {

constexpr std::size_t kSize = 24;

Table::Settings settings_of(std::size_t dim, std::size_t rows, const char* name) {
  return {.name = name,
          .dim = dim,
          .rows = rows,
          .max_bytes = rows ? 0 : std::size_t{1} << 20,
          .initial = {"uniform", {{"bound", 1}}},
          .rule = {"sgd", {{"lr", 0.5}}},
          .staleness = {"none"},
          .seed = 9};
}

// Two features of the first table, with bags that may be empty, and one of the second.
struct Ids {
  explicit Ids(std::uint64_t seed) : random(seed) {
    for (std::size_t f = 0; f < 2; ++f) {
      offsets[f].push_back(0);
      for (std::size_t i = 0; i < kSize; ++i) {
        for (std::size_t k = random() % 4; k > 0; --k) ids[f].push_back(random() % 50);
        offsets[f].push_back(static_cast<std::uint32_t>(ids[f].size()));
      }
    }
    for (std::size_t i = 0; i < kSize; ++i) ids[2].push_back(random() % 20);
    for (std::size_t f = 0; f < 3; ++f) {
      columns[f] = {ids[f].data(), f < 2 ? offsets[f].data() : nullptr, nullptr};
    }
  }
  BatchView view() {
    BatchView view{nullptr, Targets(), kSize};
    view.columns = columns;
    return view;
  }

  std::mt19937_64 random;
  std::vector<std::uint64_t> ids[3];
  std::vector<std::uint32_t> offsets[2];
  IdColumn columns[3];
};

// A gradient of each entry, and their sums by table and id.
struct Sums {
  std::map<std::uint64_t, std::vector<float>> of[2];

  void add(const Ids& batch, const BatchView& view, std::uint64_t seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    std::normal_distribution<float> normal;
    for (std::size_t f = 0; f < 3; ++f) {
      const std::size_t t = f / 2;
      const TableRows& rows = view.tables[t];
      for (std::size_t e = 0; e < batch.ids[f].size(); ++e) {
        std::vector<float>& sum = of[t][batch.ids[f][e]];
        sum.resize(rows.dim);
        const std::uint32_t place = view.places[f][e];
        REQUIRE(place < rows.count);
        for (std::size_t i = 0; i < rows.dim; ++i) {
          const float g = normal(random);
          sum[i] += g;
          rows.gradient[place * rows.stride + i] += g;
        }
      }
    }
  }
};

std::vector<float> row_of(Table& table, std::uint64_t id) {
  std::vector<float> values(table.dim());
  table.lookup(&id, 1, values.data(), nullptr);
  return values;
}

}  // namespace

TEST_CASE("each distinct id's row is read once, and gets the sum of its entries' gradients") {
  for (const bool grows : {false, true}) {
    CAPTURE(grows);
    const std::vector<std::shared_ptr<Table>> tables = {
        std::make_shared<Table>(settings_of(10, grows ? 0 : 50, "a")),
        std::make_shared<Table>(settings_of(4, grows ? 0 : 20, "b"))};
    LocalRows store(tables, {0, 0, 1}, 1, 1, false);
    std::unique_ptr<BatchRows> rows[2] = {store.make_batch(), store.make_batch()};
    Ids batches[2] = {Ids(1), Ids(2)};
    BatchView views[2] = {batches[0].view(), batches[1].view()};
    store.prefetch(0, views[0], *rows[0]);
    for (std::uint64_t k = 0; k < 20; ++k) {
      const std::size_t now = k % 2, next = 1 - now;
      batches[next] = Ids(k + 2);
      views[next] = batches[next].view();
      for (std::size_t f = 0; f < 3; ++f) {
        batches[next].columns[f].ids = batches[next].ids[f].data();
        batches[next].columns[f].offsets = f < 2 ? batches[next].offsets[f].data() : nullptr;
      }
      store.prefetch(0, views[next], *rows[next]);
      store.pull(0, views[now], *rows[now]);
      std::map<std::uint64_t, std::vector<float>> before[2];
      for (std::size_t f = 0; f < 3; ++f) {
        for (std::size_t e = 0; e < batches[now].ids[f].size(); ++e) {
          const std::uint64_t id = batches[now].ids[f][e];
          const TableRows& table = views[now].tables[f / 2];
          const float* const values = table.values[views[now].places[f][e]];
          before[f / 2][id].assign(values, values + table.dim);
          REQUIRE(before[f / 2][id] == row_of(*tables[f / 2], id));
        }
      }
      CHECK(views[now].tables[0].count == before[0].size());
      Sums sums;
      sums.add(batches[now], views[now], k);
      if (k == 7) {
        store.drop(0, *rows[now]);
        continue;
      }
      const RowPublication told = store.push(0, *rows[now], {k});
      CHECK(told.applied == before[0].size() + before[1].size());
      for (std::size_t t = 0; t < 2; ++t) {
        for (auto& [id, values] : before[t]) {
          for (std::size_t i = 0; i < values.size(); ++i) values[i] -= 0.5f * sums.of[t][id][i];
          REQUIRE(row_of(*tables[t], id) == values);
        }
      }
    }
    store.leave(0);
  }
}

TEST_CASE("who evaluates admits, counts and versions nothing, and an id without a row begins") {
  const auto table = std::make_shared<Table>(settings_of(4, 0, "a"));
  LocalRows store({table}, {0}, 1, 1, false);
  const auto rows = store.make_batch();
  const std::uint64_t ids[] = {5, 900, 5};
  const IdColumn column{ids};
  BatchView view{nullptr, Targets(), 3};
  view.columns = {&column, 1};
  store.read(0, view, *rows);
  REQUIRE(view.tables.size() == 1);
  CHECK(view.tables[0].count == 2);
  CHECK(view.tables[0].gradient == nullptr);
  CHECK(view.places[0][2] == 0);
  const float* const values = view.tables[0].values[1];
  CHECK(std::vector<float>(values, values + 4) == row_of(*table, 900));
  const TableStatistics s = table->growth().statistics();
  CHECK(s.asked == 0);
  CHECK(s.admitted == 0);
  CHECK(s.updates.applied == 0);
}

TEST_CASE("a batch's rows stay in a table that evicts, until it is pushed, dropped or gone") {
  Table::Settings settings = settings_of(4, 0, "a");
  settings.max_bytes = std::size_t{1} << 16;
  settings.evict = "age";
  const auto table = std::make_shared<Table>(settings);
  const std::uint64_t ids[] = {5, 7, 5};
  std::uint64_t other = 1000;
  const auto stays = [&] {
    const std::vector<float> ones(4, 1);
    for (const std::uint64_t end = other + 5 * table->growth().statistics().capacity; other < end;
         ++other) {
      table->update(&other, 1, ones.data(), nullptr);
    }
    const std::vector<std::uint64_t> live = table->ids();
    const auto lives = [&](std::uint64_t id) {
      return std::find(live.begin(), live.end(), id) != live.end();
    };
    CHECK(lives(5) == lives(7));
    return lives(5);
  };
  const IdColumn column{ids};
  BatchView view{nullptr, Targets(), 3};
  view.columns = {&column, 1};
  LocalRows store({table}, {0}, 1, 1, false);
  auto rows = store.make_batch();
  const auto pull = [&] {
    store.prefetch(0, view, *rows);
    CHECK(stays());
    store.pull(0, view, *rows);
    CHECK(stays());
  };
  pull();
  CHECK(store.push(0, *rows, {0}).applied == 2);
  CHECK_FALSE(stays());
  pull();
  store.drop(0, *rows);
  CHECK_FALSE(stays());
  pull();
  rows.reset();
  CHECK_FALSE(stays());
  rows = store.make_batch();
  pull();
  store.read(0, view, *store.make_batch());
  store.drop(0, *rows);
  store.read(0, view, *rows);
  CHECK_FALSE(stays());
}

TEST_CASE("what has been pulled stays as it is while others update its rows") {
  for (const bool versions : {true, false}) {
    Table::Settings settings = settings_of(4, 10, "a");
    settings.versions = versions;
    const auto table = std::make_shared<Table>(settings);
    LocalRows store({table}, {0}, 1, 0, false);
    const auto rows = store.make_batch();
    const std::uint64_t ids[] = {5, 7, 5};
    const IdColumn column{ids};
    BatchView view{nullptr, Targets(), 3};
    view.columns = {&column, 1};
    const std::vector<float> before = row_of(*table, 7), ones(4, 1);
    store.prefetch(0, view, *rows);
    store.pull(0, view, *rows);
    table->update(ids + 1, 1, ones.data(), nullptr);
    const float* const pulled = view.tables[0].values[1];
    CHECK(std::vector<float>(pulled, pulled + 4) == before);
    CHECK(row_of(*table, 7) != before);
    CHECK(store.push(0, *rows, {0}).staleness == (versions ? 1 : 0));
    store.leave(0);
  }
}

TEST_CASE("a batch of nothing, and ids that are no rows") {
  const auto table = std::make_shared<Table>(settings_of(4, 10, "a"));
  LocalRows store({table}, {0}, 1, 0, false);
  const auto rows = store.make_batch();
  const std::uint64_t id = 10;
  const IdColumn column{&id};
  BatchView view{nullptr, Targets(), 0};
  view.columns = {&column, 1};
  store.prefetch(0, view, *rows);
  store.pull(0, view, *rows);
  CHECK(view.tables[0].count == 0);
  CHECK(store.push(0, *rows, {0}).applied == 0);
  view.size = 1;
  CHECK_THROWS_WITH_AS(store.prefetch(0, view, *rows), doctest::Contains("id 10 is no row"), Error);
  view.columns = {};
  CHECK_THROWS_WITH_AS(store.prefetch(0, view, *rows), doctest::Contains("0 features of ids"),
                       Error);
  store.leave(0);
  CHECK_THROWS_AS(LocalRows({table}, {1}, 1, 0, false), Error);
  CHECK_THROWS_AS(LocalRows({table}, {0}, Seats::kAll, 1, false), Error);
}

TEST_CASE("in lockstep rows change by the mean over workers, the same bits every time") {
  constexpr std::size_t kWorkers = 4, kSteps = 15;
  const auto run = [&](bool check) {
    const std::vector<std::shared_ptr<Table>> tables = {
        std::make_shared<Table>(settings_of(10, 50, "a")),
        std::make_shared<Table>(settings_of(4, 20, "b"))};
    LocalRows store(tables, {0, 0, 1}, kWorkers, 0, true);
    std::barrier barrier(kWorkers);
    std::vector<Sums> sums(kWorkers);
    std::vector<std::vector<float>> before, after;
    const auto all_rows = [&] {
      std::vector<std::vector<float>> all;
      for (std::uint64_t id = 0; id < 50; ++id) all.push_back(row_of(*tables[0], id));
      for (std::uint64_t id = 0; id < 20; ++id) all.push_back(row_of(*tables[1], id));
      return all;
    };
    std::vector<std::thread> threads;
    for (std::size_t w = 0; w < kWorkers; ++w) {
      threads.emplace_back([&, w] {
        std::unique_ptr<BatchRows> rows[2] = {store.make_batch(), store.make_batch()};
        std::vector<Ids> batches;
        for (std::size_t k = 0; k <= kSteps; ++k) batches.emplace_back(k * kWorkers + w);
        for (Ids& batch : batches) {
          for (std::size_t f = 0; f < 3; ++f) {
            batch.columns[f] = {batch.ids[f].data(), f < 2 ? batch.offsets[f].data() : nullptr,
                                nullptr};
          }
        }
        BatchView views[2] = {batches[0].view(), batches[0].view()};
        store.prefetch(w, views[0], *rows[0]);
        for (std::size_t k = 0; k < kSteps; ++k) {
          const std::size_t now = k % 2, next = 1 - now;
          views[next] = batches[k + 1].view();
          store.prefetch(w, views[next], *rows[next]);
          store.pull(w, views[now], *rows[now]);
          sums[w] = {};
          sums[w].add(batches[k], views[now], k * kWorkers + w);
          barrier.arrive_and_wait();
          if (check && w == 0) before = all_rows();
          barrier.arrive_and_wait();
          store.push(w, *rows[now], {k});
          barrier.arrive_and_wait();
          if (check && w == 0) {
            after = all_rows();
            for (std::uint64_t r = 0; r < 70; ++r) {
              std::vector<float> sum(before[r].size());
              const std::size_t t = r < 50 ? 0 : 1;
              for (const Sums& each : sums) {
                const auto found = each.of[t].find(t ? r - 50 : r);
                if (found == each.of[t].end()) continue;
                for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += found->second[i];
              }
              for (std::size_t i = 0; i < sum.size(); ++i) {
                REQUIRE(after[r][i] ==
                        doctest::Approx(before[r][i] - 0.5f * (sum[i] / kWorkers)).epsilon(1e-6));
              }
            }
          }
          barrier.arrive_and_wait();
        }
        store.leave(w);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return all_rows();
  };
  const auto first = run(true);
  for (int again = 0; again < 3; ++again) CHECK(run(false) == first);
}

// Rows that one worker has found and another folds: a third thread gives what is evicted meanwhile
// to ids of its own.
TEST_CASE("in lockstep nobody's rows become another's before all have been folded") {
  constexpr std::size_t kDim = 4;
  for (const int kind : {0, 1, 2, 3}) {
    const bool leaves = kind % 2 == 1, shared = kind < 2;  // else each holds its own alone
    CAPTURE(leaves);
    CAPTURE(shared);
    Table::Settings settings = settings_of(kDim, 0, "a");
    settings.initial = {"zeros"};
    settings.evict = "age";
    settings.max_bytes = 40'000;
    const auto table = std::make_shared<Table>(settings);
    const std::size_t many = 3 * table->growth().statistics().capacity;
    std::uint64_t next = 1000;
    const std::vector<float> nothing(kDim);
    const auto insert = [&] {
      for (std::size_t i = 0; i < many; ++i, ++next) {
        table->update(&next, 1, nothing.data(), nullptr);
      }
    };
    LocalRows store({table}, {0}, 2, 0, true);
    const auto first = store.make_batch(), second = store.make_batch(), third = store.make_batch();
    std::vector<std::uint64_t> ids(40);
    std::iota(ids.begin(), ids.end(), 1);
    std::vector<std::uint64_t> others(40);
    std::iota(others.begin(), others.end(), shared ? 1 : 101);
    const IdColumn columns[] = {{ids.data()}, {others.data()}};
    BatchView view{nullptr, Targets(), ids.size()}, other = view;
    view.columns = {&columns[0], 1};
    other.columns = {&columns[1], 1};
    store.prefetch(0, view, *first);
    store.pull(0, view, *first);
    const TableRows& rows = view.tables[0];
    std::fill_n(rows.gradient, rows.count * rows.stride, 1.0f);
    insert();  // which evicts them
    store.prefetch(1, other, *second);
    store.prefetch(1, other, *third);  // by which it holds what it found for the second alone
    store.pull(1, other, *second);
    std::fill_n(other.tables[0].gradient, ids.size() * other.tables[0].stride, 1.0f);
    store.push(0, *first, {0});
    if (leaves) store.leave(0);
    insert();
    store.push(1, *second, {0});
    std::size_t wrong = 0;
    for (std::uint64_t id = 1000; id < next; ++id) wrong += row_of(*table, id) != nothing;
    CHECK(wrong == 0);
    store.leave(1);
    if (!leaves) store.leave(0);
    // Now they are let go: what else is inserted finds as much room as before.
    const std::uint64_t before = table->growth().statistics().admitted;
    insert();
    CHECK(table->growth().statistics().admitted > before + many / 2);
  }
}

TEST_CASE("who would like to keep more seats than a table has is told, and waits for nobody") {
  const auto table = std::make_shared<Table>(settings_of(4, 10, "a"));
  const std::uint64_t id = 3;
  float values[4];
  {
    const LocalRows all({table}, {0}, Seats::kKept - 3, 1, true);
    const LocalRows some({table}, {0}, 1, 1, true);
    CHECK_THROWS_WITH_AS(LocalRows({table}, {0}, 1, 0, false),
                         doctest::Contains("1152 threads of trainings and evaluations at once"),
                         Error);
    table->lookup(&id, 1, values, nullptr);  // for who comes and goes there are others
  }
  const LocalRows again({table}, {0}, Seats::kKept, 0, false);
}

TEST_CASE("in lockstep what becomes of gradients adds up to what was asked for") {
  for (const std::uint32_t admit_after : {1u, 3u}) {
    CAPTURE(admit_after);
    constexpr std::size_t kWorkers = 3, kSteps = 4;
    Table::Settings settings = settings_of(4, 0, "a");
    settings.admit_after = admit_after;
    const auto table = std::make_shared<Table>(settings);
    LocalRows store({table}, {0}, kWorkers, 0, true);
    std::vector<std::uint64_t> ids(20);
    std::iota(ids.begin(), ids.end(), 1);
    std::vector<std::unique_ptr<BatchRows>> rows;
    for (std::size_t w = 0; w < kWorkers; ++w) rows.push_back(store.make_batch());
    RowPublication told;
    for (std::size_t k = 0; k < kSteps; ++k) {
      for (std::size_t w = 0; w < kWorkers; ++w) {  // each begins with ids of its own
        const IdColumn column{ids.data() + w};
        BatchView view{nullptr, Targets(), ids.size() - kWorkers};
        view.columns = {&column, 1};
        store.prefetch(w, view, *rows[w]);
        store.pull(w, view, *rows[w]);
      }
      for (std::size_t w = 0; w < kWorkers; ++w) told.add(store.push(w, *rows[w], {k}));
    }
    for (std::size_t w = 0; w < kWorkers; ++w) store.leave(w);
    const TableStatistics s = table->growth().statistics();
    const RowPublication& all = s.updates;
    CHECK(s.asked == kWorkers * kSteps * (ids.size() - kWorkers));
    CHECK(all.applied + all.folded + all.late + all.unadmitted + all.deferred + all.refused ==
          s.asked);
    CHECK(all.applied == told.applied);
    CHECK(all.folded == told.folded);
    CHECK(all.octaves[0] == all.applied);  // nothing is stale
    if (admit_after > 1) {
      CHECK(all.unadmitted > 0);
    } else {
      CHECK(all.applied == kSteps * (ids.size() - 1));
    }
  }
}

TEST_CASE("in lockstep values are clipped in the mean") {
  const auto clipped = [](std::size_t workers) {
    Table::Settings settings = settings_of(4, 10, "a");
    settings.rule = {"sgd", {{"lr", 1.0}, {"clip_value", 0.01}}};
    settings.initial = {"zeros", {}};
    const auto table = std::make_shared<Table>(settings);
    LocalRows store({table}, {0}, workers, 0, true);
    const std::uint64_t id = 3;
    const IdColumn column{&id};
    std::vector<BatchView> views(workers, BatchView{nullptr, Targets(), 1});
    std::vector<std::unique_ptr<BatchRows>> rows;
    for (std::size_t w = 0; w < workers; ++w) {
      views[w].columns = {&column, 1};
      rows.push_back(store.make_batch());
      store.prefetch(w, views[w], *rows[w]);
      store.pull(w, views[w], *rows[w]);
      std::fill_n(views[w].tables[0].gradient, 4, 1.0f);
    }
    for (std::size_t w = 0; w < workers; ++w) store.push(w, *rows[w], {});
    float values[4];
    table->lookup(&id, 1, values, nullptr);
    return values[0];
  };
  CHECK(clipped(1) == -0.01f);
  CHECK(clipped(2) == -0.01f);
}

namespace {

// A full table of rows of 16 floats, for which ids come that it has never seen.
struct Full {
  explicit Full(std::size_t workers) {
    Table::Settings settings = settings_of(16, 0, "a");
    settings.rule = {"adagrad", {{"lr", 0.02}, {"eps", 1e-10}, {"initial_accumulator", 0}}};
    settings.evict = "age";
    settings.max_bytes = std::size_t{1} << 24;
    table = std::make_shared<Table>(settings);
    store.emplace(std::vector{table}, std::vector<std::size_t>{0}, workers, 0, false);
    for (std::size_t w = 0; w < workers; ++w) {
      rows.push_back({store->make_batch(), store->make_batch()});
    }
    views.resize(workers);
  }
  // The worker finds its next batch, and makes the update of the one before.
  void step(std::size_t worker, std::size_t size) {
    prefetch(worker, size);
    update(worker);
  }
  void prefetch(std::size_t worker, std::size_t size) {
    std::vector<std::uint64_t> ids(size);
    std::iota(ids.begin(), ids.end(), next);
    next += size;
    const IdColumn column{ids.data()};
    std::swap(rows[worker][0], rows[worker][1]);
    std::swap(views[worker][0], views[worker][1]);
    BatchView& view = views[worker][0];
    view = {nullptr, Targets(), size};
    view.columns = {&column, 1};
    store->prefetch(worker, view, *rows[worker][0]);
    view.columns = {};
  }
  void update(std::size_t worker) {
    if (views[worker][1].size == 0) return;
    store->pull(worker, views[worker][1], *rows[worker][1]);
    store->push(worker, *rows[worker][1], {t++});
  }
  // Ids without a row; by the way, few rows go that are in use (those to go are found by sampling).
  std::uint64_t refused() const {
    const RowPublication updates = table->growth().statistics().updates;
    CHECK(1000 * updates.late < next);
    return updates.refused + updates.deferred;
  }

  std::shared_ptr<Table> table;
  std::optional<LocalRows> store;
  std::vector<std::array<std::unique_ptr<BatchRows>, 2>> rows;
  std::vector<std::array<BatchView, 2>> views;
  std::uint64_t next = 1, t = 0;
};

}  // namespace

TEST_CASE("a full table takes in what batches bring, by evicting others") {
  for (const std::size_t size : {256, 2048, 4096, 8192}) {
    CAPTURE(size);
    Full full(1);
    const std::size_t capacity = full.table->growth().statistics().capacity;
    while (full.next < 3 * capacity) full.step(0, size);
    CHECK(full.refused() == 0);
    const TableStatistics s = full.table->growth().statistics();
    CHECK(s.evicted > capacity);
    // A sixteenth of the rows is kept free, and shards are not all as full.
    CHECK(s.rows >= capacity - capacity / 8);
  }
}

TEST_CASE("a full table takes in what others bring, however long one stands still") {
  for (const std::size_t size : {64, 4096}) {
    CAPTURE(size);
    Full full(2);
    const std::size_t capacity = full.table->growth().statistics().capacity;
    const auto go_on = [&](auto&& step) {
      for (const std::uint64_t end = full.next + 3 * capacity; full.next < end;) step();
      CHECK(full.refused() == 0);
    };
    const auto both = [&] {
      full.step(0, size);
      full.step(1, size);
    };
    go_on(both);
    full.prefetch(1, size);  // and sleeps
    go_on([&] { full.step(0, size); });
    full.update(1);
    go_on(both);
    CHECK(full.table->growth().statistics().updates.late == 0);
  }
}
