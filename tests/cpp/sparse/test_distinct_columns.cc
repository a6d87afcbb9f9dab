#include <doctest/doctest.h>

#include <vector>

#include "leashed/sparse/distinct_columns.h"

using namespace leashed;

namespace {

using Offsets = std::vector<std::int64_t>;
using Columns = std::vector<std::int32_t>;
using Values = std::vector<float>;

}  // namespace

TEST_CASE("a column that a row has again is put where it comes first, with the sum") {
  const Offsets offsets = {0, 0, 4, 5, 8};
  const Columns columns = {2, 0, 2, 2, 2, 1, 1, 0};
  const Values values = {1, 5, 0.5f, 0.25f, 3, 4, -4, 7};
  const DistinctColumns distinct({offsets.data(), columns.data(), values.data()}, 4, 3);
  const SparseRows& found = distinct.view();
  CHECK(Offsets(found.offsets, found.offsets + 5) == Offsets{0, 0, 2, 3, 5});
  CHECK(Columns(found.columns, found.columns + 5) == Columns{2, 0, 2, 1, 0});
  CHECK(Values(found.values, found.values + 5) == Values{1.75f, 5, 3, 0, 7});
}

TEST_CASE("values that are left out are 1 each") {
  const Offsets offsets = {0, 3};
  const Columns columns = {1, 1, 1};
  const DistinctColumns distinct({offsets.data(), columns.data(), nullptr}, 1, 2);
  CHECK(distinct.view().offsets[1] == 1);
  CHECK(distinct.view().values[0] == 3);
}

TEST_CASE("rows without a column twice are not copied") {
  const Offsets offsets = {0, 2, 4, 4};
  const Columns columns = {0, 1, 1, 0};
  const SparseRows given{offsets.data(), columns.data(), nullptr};
  const DistinctColumns distinct(given, 3, 2);
  CHECK(distinct.view().columns == given.columns);
  CHECK(distinct.view().values == nullptr);
  const DistinctColumns none(given, 0, 2);
  CHECK(none.view().columns == given.columns);
}
