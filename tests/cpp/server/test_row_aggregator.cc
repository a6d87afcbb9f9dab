// Rows that many workers have pulled, and updates that are put together of what several push,
// beside sums by id over entries.
#include <doctest/doctest.h>

#include <map>
#include <random>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/server/row_aggregator.h"

using namespace leashed;

namespace {

constexpr std::size_t kSize = 24, kDim = 10;
constexpr float kLr = 0.5f;

Table::Settings settings_of(const char* name, std::size_t rows) {
  return {.name = name,
          .dim = kDim,
          .rows = rows,
          .max_bytes = rows ? 0 : std::size_t{1} << 20,
          .initial = {"uniform", {{"bound", 1}}},
          .rule = {"sgd", {{"lr", kLr}}},
          .staleness = {"none"},
          .seed = 9};
}

using Values = std::vector<float>;
using ByRow = std::map<std::pair<std::size_t, std::uint64_t>, Values>;  // by table and id

// Two features of the first table, with bags that may be empty, and one of the second.
struct Push {
  explicit Push(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (std::size_t f = 0; f < 3; ++f) {
      offsets[f].push_back(0);
      for (std::size_t i = 0; i < kSize; ++i) {
        for (std::size_t k = f < 2 ? random() % 4 : 1; k > 0; --k) ids[f].push_back(random() % 30);
        offsets[f].push_back(static_cast<std::uint32_t>(ids[f].size()));
      }
      columns[f] = {ids[f].data(), f < 2 ? offsets[f].data() : nullptr, nullptr};
    }
    view.columns = columns;
  }
  // Adds a gradient to each entry's row.
  void compute(RowHolder& holder, std::uint64_t seed) {
    holder.show(pulled, view, shown, gradients);
    std::mt19937 random(static_cast<unsigned>(seed));
    std::normal_distribution<float> normal;
    for (std::size_t f = 0; f < 3; ++f) {
      const TableRows& rows = view.tables[f / 2];
      for (std::size_t e = 0; e < ids[f].size(); ++e) {
        const std::uint32_t place = view.places[f][e];
        REQUIRE(place < rows.count);
        Values& sum = sums[{f / 2, ids[f][e]}];
        sum.resize(kDim);
        for (std::size_t i = 0; i < kDim; ++i) {
          const float g = normal(random);
          sum[i] += g;
          rows.gradient[place * rows.stride + i] += g;
        }
      }
    }
  }

  std::vector<std::uint64_t> ids[3];
  std::vector<std::uint32_t> offsets[3];
  IdColumn columns[3];
  BatchView view{nullptr, Targets(), kSize};
  PulledRows pulled;
  ShownRows shown;
  AlignedArray<float> gradients;
  ByRow sums;
};

Values row_of(Table& table, std::uint64_t id) {
  Values values(table.dim());
  table.lookup(&id, 1, values.data(), nullptr);
  return values;
}

ByRow all_of(const std::vector<std::shared_ptr<Table>>& tables) {
  ByRow all;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    for (std::uint64_t id = 0; id < 30; ++id) all[{t, id}] = row_of(*tables[t], id);
  }
  return all;
}

std::vector<std::shared_ptr<Table>> made(bool grows, const Choice& staleness = {"none"}) {
  std::vector<std::shared_ptr<Table>> tables;
  for (const char* name : {"a", "b"}) {
    Table::Settings settings = settings_of(name, grows ? 0 : 30);
    settings.staleness = staleness;
    tables.push_back(std::make_shared<Table>(settings));
  }
  return tables;
}

}  // namespace

TEST_CASE(
    "an update of several has for each id the sum over the pushes, over their number, or that "
    "of those that contain it") {
  for (const auto& [grows, by_containing] :
       {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
    CAPTURE(grows);
    CAPTURE(by_containing);
    const auto tables = made(grows);
    RowHolder holder(tables, {0, 0, 1});
    RowAggregator aggregator(holder, by_containing);
    ByRow wanted = all_of(tables);
    std::uint64_t asked = 0;
    RowPublication told;
    for (std::uint64_t t = 0; t < 5; ++t) {
      std::vector<Push> pushes;
      pushes.reserve(3);
      for (std::uint64_t w = 0; w < 3; ++w) pushes.emplace_back(10 * t + w);
      for (Push& push : pushes) holder.pull(push.view, push.pulled);
      // They come in another order than the slots have.
      for (const std::size_t w : {2, 0, 1}) {
        pushes[w].compute(holder, 100 * t + w);
        for (const auto& [key, values] : wanted) {
          const auto found = pushes[w].sums.find(key);
          if (found != pushes[w].sums.end()) ++asked;
        }
        aggregator.hold(static_cast<std::uint32_t>(w), pushes[w].pulled.keys, pushes[w].gradients);
      }
      const Aggregator::Part parts[] = {{0, 1}, {1, 0.25}, {2, 1}};
      told.add(aggregator.apply(parts, 3, t));
      for (auto& [key, values] : wanted) {
        Values sum(kDim, 0.0f);
        float containing = 0;
        for (const Aggregator::Part& part : parts) {
          const auto found = pushes[part.slot].sums.find(key);
          if (found == pushes[part.slot].sums.end()) continue;
          ++containing;
          for (std::size_t i = 0; i < kDim; ++i) {
            sum[i] += static_cast<float>(part.weight) * found->second[i];
          }
        }
        if (containing == 0) continue;
        const float divisor = by_containing ? containing : 3;
        for (std::size_t i = 0; i < kDim; ++i) values[i] -= kLr * (sum[i] / divisor);
        const Values got = row_of(*tables[key.first], key.second);
        for (std::size_t i = 0; i < kDim; ++i) CHECK(got[i] == doctest::Approx(values[i]));
      }
    }
    CHECK(told.applied + told.folded == asked);
    CHECK(told.staleness == 0);
  }
}

TEST_CASE("one push that counts whole is the update of the plain holder, bit for bit") {
  std::vector<ByRow> found;
  for (const bool aggregated : {false, true}) {
    const auto tables = made(true, {"power", {{"k", 1}}});
    RowHolder holder(tables, {0, 0, 1});
    RowAggregator aggregator(holder, false);
    Push slow(1), fast(2);
    holder.pull(slow.view, slow.pulled);
    holder.pull(fast.view, fast.pulled);
    for (Push* const push : {&fast, &slow}) {
      push->compute(holder, 7);
      if (aggregated) {
        aggregator.hold(0, push->pulled.keys, push->gradients);
        const Aggregator::Part part{0, 1};
        aggregator.apply({&part, 1}, 1, 0);
      } else {
        holder.push(push->pulled.keys, push->gradients.data(), 0);
      }
    }
    found.push_back(all_of(tables));
  }
  CHECK(found[0] == found[1]);
}

TEST_CASE("what a worker pulled stays as it was, however many have pushed since") {
  const auto tables = made(false);
  RowHolder holder(tables, {0, 0, 1});
  Push slow(1);
  holder.pull(slow.view, slow.pulled);
  const ByRow before = all_of(tables);
  for (std::uint64_t k = 0; k < 4; ++k) {
    Push other(1);
    holder.pull(other.view, other.pulled);
    other.compute(holder, k);
    CHECK(holder.push(other.pulled.keys, other.gradients.data(), k).staleness == 0);
  }
  slow.compute(holder, 9);
  for (std::size_t f = 0; f < 3; ++f) {
    for (std::size_t e = 0; e < slow.ids[f].size(); ++e) {
      const float* const values = slow.view.tables[f / 2].values[slow.view.places[f][e]];
      CHECK(Values(values, values + kDim) == before.at({f / 2, slow.ids[f][e]}));
    }
  }
  const RowPublication told = holder.push(slow.pulled.keys, slow.gradients.data(), 4);
  CHECK(told.stalest == 4);
  CHECK(told.staleness == 4 * told.applied);
}

TEST_CASE("what a table's policy leaves out is no part of the row's mean") {
  const auto tables = made(false, {"cutoff", {{"iota", 0}}});
  RowHolder holder(tables, {0, 0, 1});
  RowAggregator aggregator(holder, false);
  Push stale(1), between(1), fresh(1);
  holder.pull(stale.view, stale.pulled);
  holder.pull(between.view, between.pulled);
  between.compute(holder, 1);
  holder.push(between.pulled.keys, between.gradients.data(), 0);
  holder.pull(fresh.view, fresh.pulled);
  const ByRow before = all_of(tables);
  stale.compute(holder, 2);
  aggregator.hold(0, stale.pulled.keys, stale.gradients);
  fresh.compute(holder, 3);
  aggregator.hold(1, fresh.pulled.keys, fresh.gradients);
  const Aggregator::Part parts[] = {{0, 1}, {1, 1}};
  const RowPublication told = aggregator.apply(parts, 2, 1);
  CHECK(told.applied == fresh.sums.size());
  CHECK(told.excluded == stale.sums.size());
  CHECK(told.folded == 0);
  for (const auto& [key, sum] : fresh.sums) {
    const Values got = row_of(*tables[key.first], key.second);
    for (std::size_t i = 0; i < kDim; ++i) {
      CHECK(got[i] == doctest::Approx(before.at(key)[i] - kLr * sum[i]));
    }
  }
  // Alone it leaves the rows as they are.
  Push late(1), again(1);
  holder.pull(late.view, late.pulled);
  holder.pull(again.view, again.pulled);
  again.compute(holder, 4);
  holder.push(again.pulled.keys, again.gradients.data(), 2);
  const ByRow untouched = all_of(tables);
  late.compute(holder, 5);
  aggregator.hold(0, late.pulled.keys, late.gradients);
  const Aggregator::Part half{0, 1};
  const RowPublication nothing = aggregator.apply({&half, 1}, 2, 3);
  CHECK(nothing.applied == 0);
  CHECK(nothing.excluded == late.sums.size());
  CHECK(all_of(tables) == untouched);
}

TEST_CASE("a divisor that is to stay does, whatever a table's policy leaves out") {
  const auto tables = made(false, {"cutoff", {{"iota", 0}}});
  RowHolder holder(tables, {0, 0, 1});
  RowAggregator aggregator(holder, false);
  Push stale(1), between(1), fresh(1);
  holder.pull(stale.view, stale.pulled);
  holder.pull(between.view, between.pulled);
  between.compute(holder, 1);
  holder.push(between.pulled.keys, between.gradients.data(), 0);
  holder.pull(fresh.view, fresh.pulled);
  const ByRow before = all_of(tables);
  stale.compute(holder, 2);
  aggregator.hold(0, stale.pulled.keys, stale.gradients);
  fresh.compute(holder, 3);
  aggregator.hold(1, fresh.pulled.keys, fresh.gradients);
  const Aggregator::Part parts[] = {{0, 1}, {1, 1}};
  aggregator.apply(parts, 2, 1, true);
  for (const auto& [key, sum] : fresh.sums) {
    const Values got = row_of(*tables[key.first], key.second);
    for (std::size_t i = 0; i < kDim; ++i) {
      CHECK(got[i] == doctest::Approx(before.at(key)[i] - kLr * sum[i] / 2));
    }
  }
}

TEST_CASE("a row's gradient is clipped before it is damped, of one push and of several") {
  std::vector<ByRow> found;
  for (const std::uint32_t several : {1, 2}) {
    std::vector<std::shared_ptr<Table>> tables;
    for (const char* name : {"a", "b"}) {
      Table::Settings settings = settings_of(name, 30);
      settings.staleness = {"power", {{"k", 1}}};
      settings.rule.settings["clip_value"] = 0.5;
      tables.push_back(std::make_shared<Table>(settings));
    }
    RowHolder holder(tables, {0, 0, 1});
    RowAggregator aggregator(holder, false);
    std::vector<Push> stale;
    stale.reserve(several);
    for (std::uint32_t i = 0; i < several; ++i) stale.emplace_back(1);
    Push between(1);
    for (Push& push : stale) holder.pull(push.view, push.pulled);
    holder.pull(between.view, between.pulled);
    between.compute(holder, 1);
    holder.push(between.pulled.keys, between.gradients.data(), 0);
    std::vector<Aggregator::Part> parts;
    for (std::uint32_t slot = 0; slot < several; ++slot) {
      stale[slot].compute(holder, 2);  // the same
      aggregator.hold(slot, stale[slot].pulled.keys, stale[slot].gradients);
      parts.push_back({slot, 1});
    }
    aggregator.apply(parts, several, 1);
    found.push_back(all_of(tables));
  }
  for (const auto& [key, values] : found[0]) {
    for (std::size_t i = 0; i < kDim; ++i) {
      CHECK(found[1].at(key)[i] == doctest::Approx(values[i]).epsilon(1e-5));
    }
  }
}

TEST_CASE("a batch that contains an id divides its row's sum, unless a policy leaves it out") {
  const auto tables = made(false, {"cutoff", {{"iota", 0}}});
  RowHolder holder(tables, {0, 0, 1});
  RowAggregator aggregator(holder, true);
  Push stale(1), between(1), fresh(1), also(1);
  holder.pull(stale.view, stale.pulled);
  holder.pull(between.view, between.pulled);
  between.compute(holder, 1);
  holder.push(between.pulled.keys, between.gradients.data(), 0);
  std::uint32_t slot = 0;
  for (Push* const push : {&fresh, &also}) holder.pull(push->view, push->pulled);
  ByRow wanted = all_of(tables);
  for (Push* const push : {&stale, &fresh, &also}) {
    push->compute(holder, 2 + slot);
    aggregator.hold(slot++, push->pulled.keys, push->gradients);
  }
  for (const Push* const push : {&fresh, &also}) {
    for (const auto& [key, sum] : push->sums) {
      for (std::size_t i = 0; i < kDim; ++i) wanted[key][i] -= kLr * sum[i] / 2;
    }
  }
  // Whatever they are said to be divided by.
  const Aggregator::Part parts[] = {{0, 1}, {1, 1}, {2, 1}};
  aggregator.apply(parts, 7, 1);
  // Alone it counts whole.
  Push alone(5);
  holder.pull(alone.view, alone.pulled);
  alone.compute(holder, 9);
  for (const auto& [key, sum] : alone.sums) {
    for (std::size_t i = 0; i < kDim; ++i) wanted[key][i] -= kLr * sum[i];
  }
  aggregator.hold(0, alone.pulled.keys, alone.gradients);
  aggregator.apply({parts, 1}, 7, 2);
  for (const auto& [key, values] : all_of(tables)) {
    for (std::size_t i = 0; i < kDim; ++i) CHECK(values[i] == doctest::Approx(wanted[key][i]));
  }
}

TEST_CASE("a dropped push leaves the rows as they are, and lets them go") {
  Table::Settings settings = settings_of("a", 0);
  settings.max_bytes = std::size_t{1} << 16;
  settings.evict = "age";
  const auto table = std::make_shared<Table>(settings);
  RowHolder holder({table}, {0});
  RowAggregator aggregator(holder, false);
  std::vector<std::uint64_t> ids(64);
  PulledRows pulled;
  ShownRows shown;
  AlignedArray<float> gradients;
  std::uint64_t next = 1;
  for (int round = 0; round < 400; ++round) {
    for (std::uint64_t& id : ids) id = next++;
    const IdColumn column{ids.data()};
    BatchView view{nullptr, Targets(), ids.size()};
    view.columns = {&column, 1};
    holder.pull(view, pulled);
    holder.show(pulled, view, shown, gradients);
    aggregator.hold(0, pulled.keys, gradients);
    aggregator.drop(aggregator.keys(0));
    aggregator.drop(aggregator.keys(0));
  }
  const TableStatistics s = table->growth().statistics();
  CHECK(s.updates.applied == 0);
  CHECK(s.evicted > 0);
  CHECK(s.admitted > 2 * s.capacity);
}

TEST_CASE("rows that are held by a slow worker stay, and keep nobody from room") {
  Table::Settings settings = settings_of("a", 0);
  settings.max_bytes = std::size_t{1} << 16;
  settings.evict = "age";
  const auto table = std::make_shared<Table>(settings);
  std::uint64_t applied = 0;
  {
    RowHolder holder({table}, {0});
    PulledRows slow, pulled;
    ShownRows shown;
    AlignedArray<float> slow_gradients, gradients;
    std::vector<std::uint64_t> ids(32);
    const IdColumn column{ids.data()};
    BatchView view{nullptr, Targets(), ids.size()};
    view.columns = {&column, 1};
    std::uint64_t next = 1;
    for (std::uint64_t& id : ids) id = next++;
    holder.pull(view, slow);
    for (int round = 0; round < 200; ++round) {
      for (std::uint64_t& id : ids) id = next++;
      holder.pull(view, pulled);
      holder.show(pulled, view, shown, gradients);
      for (std::size_t i = 0; i < view.tables[0].count * view.tables[0].stride; ++i) {
        gradients[i] = 1;
      }
      const RowPublication told =
          holder.push(pulled.keys, gradients.data(), static_cast<std::uint64_t>(round));
      CHECK(told.applied == ids.size());
      applied += told.applied;
    }
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = 1 + i;
    holder.show(slow, view, shown, slow_gradients);
    for (std::size_t i = 0; i < view.tables[0].count * view.tables[0].stride; ++i) {
      slow_gradients[i] = 1e6f;
    }
    const RowPublication told = holder.push(slow.keys, slow_gradients.data(), 200);
    applied += told.applied;
    CHECK(told.applied == ids.size());
  }
  CHECK(table->growth().statistics().evicted > 0);
  CHECK(table->growth().statistics().updates.applied == applied);
  CHECK(table->steps() == 201);
}

TEST_CASE("a batch of nothing, and ids that are no rows") {
  const auto table = std::make_shared<Table>(settings_of("a", 10));
  RowHolder holder({table}, {0});
  const std::uint64_t id = 10;
  const IdColumn column{&id};
  BatchView view{nullptr, Targets(), 0};
  view.columns = {&column, 1};
  PulledRows pulled;
  ShownRows shown;
  AlignedArray<float> gradients;
  holder.pull(view, pulled);
  holder.show(pulled, view, shown, gradients);
  CHECK(view.tables[0].count == 0);
  CHECK(holder.push(pulled.keys, gradients.data(), 0).applied == 0);
  view.size = 1;
  CHECK_THROWS_AS(holder.pull(view, pulled), Error);
  CHECK(pulled.keys.parts.empty());
}
