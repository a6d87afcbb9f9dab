#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "leashed/base/error.h"
#include "leashed/data/ordered_rows.h"
#include "leashed/data/run_sampler.h"
#include "leashed/data/svmlight.h"

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

  const std::vector<float> there = ordered.ordered(theta.data(), 1);
  CHECK(ordered.original(there, 1) == theta);
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

TEST_CASE("A pass of the run sampler has every row once, whatever is claimed at once") {
  for (const std::size_t n : {1u, 7u, 255u, 256u, 1000u, 1024u}) {
    for (const std::size_t batch_size : {1u, 3u, 64u, 300u}) {
      if (batch_size > n) continue;
      const leashed::RunSampler sampler(3, n, batch_size);
      const std::uint64_t per_pass = (n + batch_size - 1) / batch_size;
      for (const std::size_t claim : {std::size_t{1}, sampler.run()}) {
        std::vector<int> seen(n);
        for (std::uint64_t k = per_pass; k < 2 * per_pass;) {
          const auto rows = sampler.rows(k, std::min<std::size_t>(claim, 2 * per_pass - k));
          REQUIRE(rows.batches >= 1);
          REQUIRE(rows.first + rows.count <= n);
          for (std::size_t i = 0; i < rows.count; ++i) ++seen[rows.first + i];
          k += rows.batches;
        }
        CHECK(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
      }
    }
  }
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

TEST_CASE("The svmlight parser reads what the format allows") {
  const auto rows = leashed::parse_svmlight(
      "# a comment\n+1 3:0.5 1:-2e-3\t7:4 # another\n\n-1 qid:3 2:1\r\n0\n2.5 0:1e-60");
  CHECK(rows.targets == std::vector<double>{1, -1, 0, 2.5});
  CHECK(rows.offsets == std::vector<std::int64_t>{0, 3, 4, 4, 5});
  CHECK(rows.columns == std::vector<std::int32_t>{3, 1, 7, 2, 0});
  CHECK(rows.values == std::vector<float>{0.5f, -2e-3f, 4, 1, 0});
}

TEST_CASE("The svmlight parser names line and column") {
  const auto place = [](const std::string& text) -> std::string {
    try {
      leashed::parse_svmlight(text);
    } catch (const leashed::Error& error) {
      const std::string what = error.what();
      return what.substr(0, what.find(':'));
    }
    return "";
  };
  CHECK(place("x 1:1") == "line 1, column 1");
  CHECK(place("1 1:1\n1 1:1 2") == "line 2, column 8");
  CHECK(place("1 -1:1") == "line 1, column 3");
  CHECK(place("1 1:nan") == "line 1, column 5");
  CHECK(place("1 1:inf") == "line 1, column 5");
  CHECK(place("1 1:1e60") == "line 1, column 5");
  CHECK(place("1 2147483647:1") == "line 1, column 3");
  CHECK(place("1 99999999999999999999999:1") == "line 1, column 3");
  CHECK(place("1 1:1x") == "line 1, column 6");
  CHECK(place("1x 1:1") == "line 1, column 2");
  CHECK(place("nan 1:1") == "line 1, column 1");
}
