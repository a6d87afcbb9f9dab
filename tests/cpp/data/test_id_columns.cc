// Columns of ids: gathered for shuffled batches and for rows in order, they are what indexing says.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/data/indexed_batches.h"
#include "leashed/data/rows_in_order.h"

using namespace leashed;

namespace {

// Two features side by side, one on its own, bags, bags with weights, and of these the first two
// ids: with rows that are empty.
struct Clicks {
  explicit Clicks(std::size_t n) : rows(n), x(2 * n), pairs(2 * n), alone(n), offsets{0}, y(n) {
    for (std::size_t i = 0; i < n; ++i) {
      x[2 * i] = static_cast<float>(i);
      pairs[2 * i] = i;
      pairs[2 * i + 1] = ~std::uint64_t{i};
      alone[i] = i << 40;
      y[i] = static_cast<std::int32_t>(i % 2);
      for (std::size_t j = 0; j < i * 7 % 4; ++j) {
        entries.push_back(1000 * i + j);
        weights.push_back(static_cast<float>(i) - static_cast<float>(j) / 8);
      }
      offsets.push_back(static_cast<std::int64_t>(entries.size()));
    }
    features = {{pairs.data(), 2},
                {pairs.data() + 1, 2},
                {alone.data()},
                {entries.data(), 1, offsets.data()},
                {entries.data(), 1, offsets.data(), weights.data()},
                {entries.data(), 1, offsets.data(), weights.data(), 2}};
  }
  DatasetView view() const { return {x.data(), y.data(), rows, 2, {}, features}; }

  std::size_t rows;
  std::vector<float> x;
  std::vector<std::uint64_t> pairs, alone, entries;
  std::vector<std::int64_t> offsets;
  std::vector<float> weights;
  std::vector<std::int32_t> y;
  std::vector<IdFeature> features;
};

void check(const Clicks& data, const std::vector<std::size_t>& rows, const BatchView& batch) {
  REQUIRE(batch.size == rows.size());
  REQUIRE(batch.columns.size() == data.features.size());
  if (rows.empty()) return;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CHECK(batch.rows[i] == data.x.data() + 2 * rows[i]);
    CHECK(batch.targets.labels[i] == data.y[rows[i]]);
  }
  for (std::size_t f = 0; f < data.features.size(); ++f) {
    CAPTURE(f);
    const IdFeature& feature = data.features[f];
    const IdColumn& column = batch.columns[f];
    CHECK((column.offsets != nullptr) == (feature.offsets != nullptr));
    if (column.end(rows.size() - 1) > 0) {
      CHECK((column.weights != nullptr) == (feature.weights != nullptr));
    }
    std::size_t entry = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      REQUIRE(column.begin(i) == entry);
      if (!feature.offsets) {
        REQUIRE(column.ids[entry++] == feature.ids[rows[i] * feature.stride]);
      } else {
        const auto begin = feature.offsets[rows[i]], end = feature.offsets[rows[i] + 1];
        for (auto j = begin; j < end && static_cast<std::size_t>(j - begin) < feature.most;
             ++j, ++entry) {
          REQUIRE(column.ids[entry] == feature.ids[j]);
          if (feature.weights) REQUIRE(column.weights[entry] == feature.weights[j]);
        }
      }
      REQUIRE(column.end(i) == entry);
    }
  }
}

}  // namespace

TEST_CASE("a shuffled batch has the ids of its rows, feature by feature") {
  for (const std::size_t n : {1u, 2u, 33u, 500u}) {
    const Clicks data(n);
    for (const std::size_t size : {std::size_t{1}, std::size_t{7}, n}) {
      const Sampler sampler(5, n, size);
      const IndexedBatches batches(data.view(), size, 5);
      Batch batch;
      std::vector<std::size_t> rows(size);
      for (std::uint64_t k = 0; k < 5; ++k) {
        batches.fill(k, batch);
        sampler.batch(k, rows.data());
        check(data, rows, batch.view);
      }
    }
  }
}

TEST_CASE("a batch that is swapped with another keeps its columns") {
  const Clicks data(50);
  const IndexedBatches batches(data.view(), 8, 1);
  Batch one, other;
  batches.fill(0, one);
  batches.fill(1, other);
  const std::vector<std::size_t> rows = one.indices;
  std::swap(one, other);
  check(data, rows, other.view);
}

TEST_CASE("rows in order bring their ids, whatever part of the data they are") {
  const Clicks data(300);
  Batch batch;
  for (const auto& [first, count] : {std::pair{0u, 300u}, {256u, 44u}, {299u, 1u}, {10u, 0u}}) {
    fill_in_order(data.view(), first, count, batch);
    std::vector<std::size_t> rows(count);
    for (std::size_t i = 0; i < count; ++i) rows[i] = first + i;
    check(data, rows, batch.view);
  }
}

TEST_CASE("a batch of other data has none of the ids before it") {
  const Clicks clicks(20);
  Batch batch;
  fill_in_order(clicks.view(), 0, 20, batch);
  DatasetView dense = clicks.view();
  dense.ids = {};
  fill_in_order(dense, 3, 4, batch);
  CHECK(batch.view.columns.empty());
  CHECK(batch.view.rows[0] == clicks.x.data() + 6);
}

TEST_CASE("nothing is allocated once the largest batch has been seen") {
  const Clicks data(200);
  const IndexedBatches batches(data.view(), 16, 2);
  Batch batch;
  for (std::uint64_t k = 0; k < 400; ++k) batches.fill(k, batch);
  std::vector<const void*> before;
  for (const IdColumn& c : batch.view.columns) {
    before.insert(before.end(), {c.ids, c.offsets, c.weights});
  }
  for (std::uint64_t k = 400; k < 440; ++k) {
    batches.fill(k, batch);
    std::vector<const void*> after;
    for (const IdColumn& c : batch.view.columns) {
      after.insert(after.end(), {c.ids, c.offsets, c.weights});
    }
    CHECK(after == before);
  }
}

TEST_CASE("bags with 2^32 ids or more in one batch are refused before anything is copied") {
  const std::vector<std::int64_t> offsets = {0, (std::int64_t{1} << 32) - 1, std::int64_t{1} << 32};
  const std::uint64_t id = 0;  // stands for all of them; none is read
  const IdFeature feature{&id, 1, offsets.data()};
  const std::vector<std::size_t> rows = {0, 1};
  GatheredColumns columns;
  CHECK_THROWS_WITH_AS(columns.gather({&feature, 1}, rows),
                       "a batch of 2 rows has 2^32 ids or more of one feature; make batch_size "
                       "smaller",
                       Error);
}
