// Rows in the order of a training run: nothing is lost, and the columns used most come first.
#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "leashed/base/error.h"
#include "leashed/sparse/ordered_rows.h"

namespace {

struct Rows {
  std::vector<std::int64_t> offsets = {0};
  std::vector<std::int32_t> columns;
  std::vector<float> values;

  Rows(std::size_t rows, std::size_t features, unsigned seed) {
    std::mt19937 random(seed);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = random() % 6; j > 0; --j) {
        // Small numbers more often.
        columns.push_back(static_cast<std::int32_t>(random() % (1 + random() % features)));
        values.push_back(static_cast<float>(random() % 100) / 10.0f);
      }
      offsets.push_back(static_cast<std::int64_t>(columns.size()));
    }
  }
  leashed::SparseRows view() const { return {offsets.data(), columns.data(), values.data()}; }
};

float output(const leashed::SparseRows& rows, std::size_t i, const float* w) {
  float sum = 0;
  for (std::int64_t j = rows.offsets[i]; j < rows.offsets[i + 1]; ++j) {
    sum += (rows.values ? rows.values[j] : 1) * w[rows.columns[j]];
  }
  return sum;
}

}  // namespace

TEST_CASE("Rows in a training order give what they gave before, and weights come back") {
  const std::size_t n = 500, features = 80;
  Rows rows(n, features, 1);
  bool ones = false;
  SUBCASE("any values") {}
  SUBCASE("all of them 1, which are left out") { ones = true; }
  if (ones) std::fill(rows.values.begin(), rows.values.end(), 1.0f);
  const leashed::OrderedRows ordered(rows.view(), n, features, 7);
  CHECK((ordered.view().values == nullptr) == ones);
  std::vector<float> theta(features + 1);
  std::iota(theta.begin(), theta.end(), 1.0f);
  std::vector<std::size_t> places(n);
  std::iota(places.begin(), places.end(), std::size_t{0});

  const std::vector<float> there = ordered.ordered(theta.data(), {});
  CHECK(ordered.original(there, {}) == theta);
  CHECK(there[0] == theta[features]);
  const std::vector<std::size_t> from = ordered.shuffled(places.data());
  CHECK(from != places);
  CHECK(std::set<std::size_t>(from.begin(), from.end()).size() == n);
  for (std::size_t i = 0; i < n; ++i) {
    CHECK(output(ordered.view(), i, there.data() + 1) ==
          output(rows.view(), from[i], theta.data()));
  }

  const leashed::OrderedRows like(rows.view(), n, ordered);
  for (std::size_t i = 0; i < n; ++i) {
    CHECK(output(like.view(), i, there.data() + 1) == output(rows.view(), i, theta.data()));
  }
}

TEST_CASE("Columns that occur more often have smaller numbers, those that do not the last") {
  const std::size_t n = 2000, features = 300;
  const Rows rows(n, features, 2);
  const leashed::OrderedRows ordered(rows.view(), n, features, 0);
  std::vector<int> counts(features);
  const leashed::SparseRows view = ordered.view();
  for (std::int64_t j = 0; j < view.offsets[n]; ++j) {
    ++counts[static_cast<std::size_t>(view.columns[j])];
  }
  for (std::size_t i = 0; i + 1 < features; ++i) CHECK(counts[i] * 9 >= counts[i + 1] * 8);
  CHECK(std::count(counts.begin(), counts.end(), 0) ==
        static_cast<std::ptrdiff_t>(features - ordered.active()));
}

TEST_CASE("Mean squares do not saturate where there are many rows") {
  // One large value, beside which a float would not see the others' ones.
  constexpr std::size_t n = 1001;
  std::vector<std::int64_t> offsets(n + 1);
  std::iota(offsets.begin(), offsets.end(), std::int64_t{0});
  const std::vector<std::int32_t> columns(n, 0);
  std::vector<float> values(n, 1.0f);
  values[500] = 4096;
  const leashed::OrderedRows ordered({offsets.data(), columns.data(), values.data()}, n, 1, 0);
  CHECK(double{ordered.mean_squares()[0]} ==
        doctest::Approx((4096.0 * 4096 + 1000) / n).epsilon(1e-6));
}

TEST_CASE("Broken rows are named") {
  const auto broken = [](std::vector<std::int64_t> offsets, std::vector<std::int32_t> columns,
                         std::vector<float> values) -> std::string {
    try {
      leashed::check_rows({offsets.data(), columns.data(), values.data()}, offsets.size() - 1, 4,
                          values.size());
    } catch (const leashed::Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(broken({0, 1, 2}, {0, 3}, {1, 2}) == "");
  CHECK(broken({1, 2}, {0, 3}, {1, 2}).find("start with 0") != std::string::npos);
  CHECK(broken({0, 2, 1}, {0, 3}, {1, 2}).find("row 1") != std::string::npos);
  CHECK(broken({0, 3}, {0, 3}, {1, 2}).find("row 0") != std::string::npos);
  CHECK(broken({0, 1}, {0, 3}, {1, 2}).find("must end with") != std::string::npos);
  CHECK(broken({0, 2}, {0, 4}, {1, 2}).find("outside 0 to 3") != std::string::npos);
  CHECK(broken({0, 2}, {-1, 1}, {1, 2}).find("outside 0 to 3") != std::string::npos);
  CHECK(broken({0, 2}, {0, 1}, {1, 0.0f / 0.0f}).find("NaN") != std::string::npos);
}
