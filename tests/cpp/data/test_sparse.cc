#include <algorithm>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "leashed/base/error.h"
#include "leashed/data/run_sampler.h"
#include "leashed/data/svmlight.h"

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

namespace {

leashed::SvmlightRows rows_of(std::string_view text,
                              leashed::RowFormat format = leashed::RowFormat::svmlight) {
  leashed::SvmlightRows rows;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.size(), text.find('\n', at));
    leashed::add_svmlight_row(text.substr(at, end - at), format, rows);
    at = end + 1;
  }
  return rows;
}

}  // namespace

TEST_CASE("The svmlight parser reads what the format allows") {
  const auto rows =
      rows_of("# a comment\n+1 3:0.5 1:-2e-3\t7:4 # another\n\n-1 qid:3 2:1\r\n0\n2.5 0:1e-60");
  CHECK(rows.targets == std::vector<double>{1, -1, 0, 2.5});
  CHECK(rows.offsets == std::vector<std::int64_t>{0, 3, 4, 4, 5});
  CHECK(rows.columns == std::vector<std::int32_t>{3, 1, 7, 2, 0});
  CHECK(rows.values == std::vector<float>{0.5f, -2e-3f, 4, 1, 0});
}

TEST_CASE("In the libffm format each column has a field before it") {
  const auto rows = rows_of("1 0:3:0.5 2:1:1\n0\n1 7:0:2", leashed::RowFormat::libffm);
  CHECK(rows.offsets == std::vector<std::int64_t>{0, 2, 2, 3});
  CHECK(rows.fields == std::vector<std::int32_t>{0, 2, 7});
  CHECK(rows.columns == std::vector<std::int32_t>{3, 1, 0});
  CHECK(rows.values == std::vector<float>{0.5f, 1, 2});
}

TEST_CASE("The svmlight parser names the column") {
  const auto place = [](const std::string& text) -> std::string {
    try {
      rows_of(text);
    } catch (const leashed::Error& error) {
      const std::string what = error.what();
      return what.substr(0, what.find(':'));
    }
    return "";
  };
  CHECK(place("x 1:1") == "column 1");
  CHECK(place("1 1:1 2") == "column 8");
  CHECK(place("1 -1:1") == "column 3");
  CHECK(place("1 1:nan") == "column 5");
  CHECK(place("1 1:inf") == "column 5");
  CHECK(place("1 1:1e60") == "column 5");
  CHECK(place("1 2147483647:1") == "column 3");
  CHECK(place("1 99999999999999999999999:1") == "column 3");
  CHECK(place("1 1:1x") == "column 6");
  CHECK(place("1x 1:1") == "column 2");
  CHECK(place("nan 1:1") == "column 1");
}
