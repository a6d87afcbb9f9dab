// Rows that a server holds for many workers at once.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/server/row_holder.h"

using namespace leashed;

namespace {

// Rows of SGD with a rate of 1, as plainly as can be.
class PlainTable {
 public:
  explicit PlainTable(const Table::Settings& settings)
      : settings_(settings), initial_(settings.initial, settings.seed, settings.number) {}

  struct Row {
    std::vector<float> theta;
    std::uint64_t updates = 0;
  };
  Row& operator[](std::uint64_t id) {
    Row& row = rows_[id];
    if (row.theta.empty()) {
      row.theta.resize(settings_.dim);
      initial_(id, row.theta.data(), settings_.dim);
    }
    return row;
  }

 private:
  const Table::Settings settings_;
  const Initial initial_;
  std::map<std::uint64_t, Row> rows_;
};

// A fixed table, one that grows, and one that evicts but has room for all that come here.
std::vector<Table::Settings> settings_of_three(const Choice& rule) {
  const Table::Settings fixed{.name = "a",
                              .dim = 3,
                              .rows = 50,
                              .initial = {"uniform", {{"bound", 1}}},
                              .rule = rule,
                              .staleness = {"none"},
                              .seed = 7};
  Table::Settings growing = fixed, evicting = fixed;
  growing.rows = evicting.rows = 0;
  growing.max_bytes = evicting.max_bytes = std::size_t{1} << 20;
  growing.dim = 16;
  evicting.dim = 10;
  growing.number = 1;
  evicting.number = 2;
  evicting.evict = "age";
  return {fixed, growing, evicting};
}

std::vector<std::shared_ptr<Table>> tables_of(const std::vector<Table::Settings>& settings) {
  std::vector<std::shared_ptr<Table>> tables;
  for (const Table::Settings& one : settings) tables.push_back(std::make_shared<Table>(one));
  return tables;
}

}  // namespace

TEST_CASE(
    "distinct ids are pulled to where they are wanted, and updated, as by the plainest rows") {
  const std::vector<Table::Settings> settings = settings_of_three({"sgd", {{"lr", 1}}});
  RowHolder holder(tables_of(settings), {});
  std::vector<PlainTable> plain(settings.begin(), settings.end());
  struct Client {
    RowKeys keys;
    std::vector<std::uint64_t> ids[3];
    std::vector<std::uint64_t> updates[3];  // of the rows, when they were pulled
  };
  std::vector<Client> clients(6);
  std::mt19937 random(1);
  std::uint64_t t = 0, applied = 0;
  const auto pull = [&](Client& client) {
    std::vector<float> values[3];
    std::vector<std::span<const std::uint64_t>> ids;
    std::vector<float*> to;
    for (std::size_t k = 0; k < 3; ++k) {
      std::vector<std::uint64_t> all(50);
      std::iota(all.begin(), all.end(), std::uint64_t{0});
      std::ranges::shuffle(all, random);
      all.resize(random() % 20);  // none of some tables
      client.ids[k] = all;
      values[k].assign(all.size() * settings[k].dim + 1, -7);
      ids.emplace_back(client.ids[k]);
      to.push_back(values[k].data());
    }
    holder.pull(ids, client.keys, to);
    for (std::size_t k = 0; k < 3; ++k) {
      client.updates[k].clear();
      const std::size_t dim = settings[k].dim;
      for (std::size_t i = 0; i < ids[k].size(); ++i) {
        const PlainTable::Row& row = plain[k][ids[k][i]];
        REQUIRE(std::ranges::equal(row.theta, std::span(values[k]).subspan(i * dim, dim)));
        client.updates[k].push_back(row.updates);
      }
      REQUIRE(values[k].back() == -7);
    }
  };
  const auto push = [&](Client& client) {
    std::vector<float> gradients[3];
    std::vector<const float*> from;
    std::uint64_t count = 0, staleness = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      const std::size_t dim = settings[k].dim;
      for (std::size_t i = 0; i < client.ids[k].size(); ++i, ++count) {
        PlainTable::Row& row = plain[k][client.ids[k][i]];
        staleness += row.updates++ - client.updates[k][i];
        for (std::size_t j = 0; j < dim; ++j) {
          gradients[k].push_back(static_cast<float>(random() % 9) - 4);
          row.theta[j] -= gradients[k].back();
        }
      }
      from.push_back(gradients[k].data());
    }
    const RowPublication told = holder.push(client.keys, from, t++);
    REQUIRE(told.applied == count);
    REQUIRE(told.staleness == staleness);
    applied += count;
  };
  for (int step = 0; step < 3000; ++step) {
    Client& client = clients[random() % clients.size()];
    if (client.keys.parts.empty()) {
      pull(client);
    } else if (random() % 4 == 0) {
      random() % 2 == 0 ? pull(client) : holder.release(client.keys);
    } else {
      push(client);
    }
  }
  CHECK(applied > 10000);
  for (Client& client : clients) holder.release(client.keys);

  const std::vector<std::uint64_t> none, wrong = {3, 50};
  float values[6];
  RowKeys keys;
  CHECK_THROWS_WITH_AS(holder.pull(std::vector<std::span<const std::uint64_t>>{wrong, none, none},
                                   keys, std::vector<float*>{values, values, values}),
                       doctest::Contains("id 50 is no row of table 'a'"), Error);
  CHECK(keys.parts.empty());
}

TEST_CASE("who only looks sees rows as they are, or would begin, and nothing else is changed") {
  const std::vector<Table::Settings> settings = settings_of_three({"sgd", {{"lr", 1}}});
  const auto tables = tables_of(settings), untouched = tables_of(settings);
  std::vector<PlainTable> plain(settings.begin(), settings.end());
  RowHolder holder(tables, {}), beside(untouched, {});
  const std::vector<std::uint64_t> known = {4, 1, 17, 0}, some = {17, 30, 4}, none, wrong = {3, 50};
  std::vector<float> values[3];
  std::vector<float*> to;
  for (std::size_t k = 0; k < 3; ++k) {
    values[k].resize(known.size() * settings[k].dim);
    to.push_back(values[k].data());
  }
  using Ids = std::vector<std::span<const std::uint64_t>>;
  const auto look = [&](const Ids& ids) {
    holder.look(ids, to);
    for (std::size_t k = 0; k < 3; ++k) {
      for (std::size_t i = 0; i < ids[k].size(); ++i) {
        const std::size_t dim = settings[k].dim;
        REQUIRE(std::ranges::equal(plain[k][ids[k][i]].theta,
                                   std::span(values[k]).subspan(i * dim, dim)));
      }
    }
  };
  look({some, some, some});  // before any of them is there
  const std::vector<float> ones(known.size() * 16, 1);
  const std::vector<const float*> from(3, ones.data());
  RowKeys keys, same;
  for (std::uint64_t t = 0; t < 10; ++t) {
    holder.pull(Ids{known, known, known}, keys, to);
    look({some, some, some});  // while others hold some of them
    look({none, some, none});
    CHECK_THROWS_WITH_AS(look({wrong, some, some}), doctest::Contains("id 50"), Error);
    beside.pull(Ids{known, known, known}, same, to);
    const RowPublication told = holder.push(keys, from, t), expected = beside.push(same, from, t);
    CHECK(told.applied == expected.applied);
    CHECK(told.staleness == expected.staleness);
    for (std::size_t k = 0; k < 3; ++k) {
      for (const std::uint64_t id : known) {
        for (float& value : plain[k][id].theta) value -= 1;
      }
    }
    look({known, known, known});
  }
  for (std::size_t k = 0; k < 3; ++k) {
    CAPTURE(k);
    CHECK(tables[k]->digest() == untouched[k]->digest());
    if (!tables[k]->grows()) continue;
    const TableStatistics s = tables[k]->growth().statistics(),
                          u = untouched[k]->growth().statistics();
    CHECK(s.rows == u.rows);
    CHECK(s.asked == u.asked);
    CHECK(s.found == u.found);
  }
}

TEST_CASE("rows that were looked at may be evicted as others may") {
  const auto table = std::make_shared<Table>(Table::Settings{.name = "a",
                                                             .dim = 4,
                                                             .max_bytes = std::size_t{1} << 20,
                                                             .initial = {"zeros"},
                                                             .rule = {"sgd", {{"lr", 0.5}}},
                                                             .staleness = {"none"},
                                                             .evict = "age"});
  RowHolder holder({table}, {});
  constexpr std::size_t kSize = 256;
  const std::size_t capacity = table->growth().statistics().capacity;
  std::vector<std::uint64_t> ids(kSize);
  std::vector<float> values(kSize * 4);
  const std::vector<float> nothing(kSize * 4);
  const std::vector<std::span<const std::uint64_t>> spans = {ids};
  const std::vector<float*> to = {values.data()};
  const std::vector<const float*> from = {nothing.data()};
  RowKeys keys;
  std::uint64_t next = 1;
  for (std::uint64_t t = 0; next < 3 * capacity; ++t, next += kSize) {
    std::iota(ids.begin(), ids.end(), next);
    holder.pull(spans, keys, to);
    holder.look(spans, to);
    holder.push(keys, from, t);
    holder.look(spans, to);
  }
  const TableStatistics s = table->growth().statistics();
  CHECK(s.evicted > capacity);
  CHECK(s.updates.refused + s.updates.deferred == 0);
}

TEST_CASE("ids and the batch that they are of have the same bits") {
  const auto settings =
      settings_of_three({"adagrad", {{"lr", 0.1}, {"eps", 1e-10}, {"initial_accumulator", 0}}});
  const auto by_batch = tables_of(settings), by_ids = tables_of(settings);
  RowHolder of_batches(by_batch, {0, 1, 2}), of_ids(by_ids, {});
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  constexpr std::size_t kSize = 30;
  for (std::uint64_t t = 0; t < 20; ++t) {
    std::vector<std::uint64_t> ids(3 * kSize);
    for (std::uint64_t& id : ids) id = random() % 50;
    std::vector<IdColumn> columns;
    for (std::size_t k = 0; k < 3; ++k) columns.push_back({ids.data() + k * kSize});
    BatchView view{nullptr, Targets(), kSize};
    view.columns = columns;
    PulledRows pulled;
    ShownRows shown;
    AlignedArray<float> gradients;
    of_batches.pull(view, pulled);
    of_batches.show(pulled, view, shown, gradients);

    RowKeys keys;
    std::vector<std::span<const std::uint64_t>> distinct;
    std::vector<std::vector<float>> values, dense;
    std::vector<float*> to;
    std::vector<const float*> from;
    std::size_t first = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      const std::size_t count = view.tables[k].count;
      distinct.emplace_back(pulled.keys.ids.data() + first, count);
      first += count;
      values.emplace_back(count * settings[k].dim);
      to.push_back(values[k].data());
    }
    of_ids.pull(distinct, keys, to);
    for (std::size_t k = 0; k < 3; ++k) {
      const TableRows& rows = view.tables[k];
      dense.emplace_back();
      for (std::size_t i = 0; i < rows.count; ++i) {
        REQUIRE(std::equal(rows.values[i], rows.values[i] + rows.dim, &values[k][i * rows.dim]));
        for (std::size_t j = 0; j < rows.dim; ++j) {
          dense[k].push_back(rows.gradient[i * rows.stride + j] = normal(random));
        }
      }
      from.push_back(dense[k].data());
    }
    const RowPublication one = of_batches.push(pulled.keys, gradients.data(), t);
    const RowPublication other = of_ids.push(keys, from, t);
    CHECK(one.applied == other.applied);
  }
  for (std::size_t k = 0; k < 3; ++k) CHECK(by_batch[k]->digest() == by_ids[k]->digest());
}

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
