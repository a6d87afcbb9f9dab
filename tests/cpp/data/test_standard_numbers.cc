#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "leashed/data/standard_numbers.h"

using leashed::NumberMoments;
using leashed::StandardNumbers;

namespace {

std::vector<float> column(std::size_t rows, float begin, float step) {
  std::vector<float> x(rows);
  for (std::size_t i = 0; i < rows; ++i) x[i] = begin + step * static_cast<float>(i % 7);
  return x;
}

}  // namespace

TEST_CASE("rows stand for themselves until a block is there, and later for the blocks before") {
  StandardNumbers all({true}, {});
  const std::vector<float> x = column(1000, 3, 1);
  all.add(x.data(), 255);
  CHECK(!all.ready());
  all.add(x.data() + 255, 1);
  CHECK(all.ready());
  CHECK(all.moments(0).rows == 256);
  all.add(x.data() + 256, 744);
  CHECK(all.moments(255).rows == 256);
  CHECK(all.moments(512).rows == 512);
  CHECK(all.moments(1000).rows == 768);
  all.finish();
  CHECK(all.moments(999).rows == 768);
  CHECK(all.moments(1000).rows == 1000);
}

TEST_CASE("it does not matter how rows come together") {
  const std::vector<float> x = column(5000, -2, 0.25f);
  StandardNumbers whole({true}, {}), parts({true}, {});
  whole.add(x.data(), x.size());
  for (std::size_t i = 0; i < x.size(); i += 7) {
    parts.add(x.data() + i, std::min<std::size_t>(7, x.size() - i));
  }
  for (const std::uint64_t row : {0, 300, 2000, 4999}) {
    CHECK(whole.moments(row).mean == parts.moments(row).mean);
    CHECK(whole.moments(row).squares == parts.moments(row).squares);
    CHECK(whole.moments(row).rows == parts.moments(row).rows);
  }
}

TEST_CASE("many rows, huge values and such as do not vary lose nothing") {
  // 2^24 rows before: in float32 one more would be none.
  StandardNumbers all({true, true, true, false},
                      {1 << 25, {1e6, 7, 0, 0}, {std::ldexp(1.0, 25), 0, 0, 0}});
  std::vector<float> x;
  for (int i = 0; i < 256; ++i) x.insert(x.end(), {1e6f, 7, i % 2 ? 3e38f : -3e38f, 1e30f});
  std::vector<float> to = x;
  all.add(x.data(), 256);
  CHECK(all.moments(255).rows == 1 << 25);
  CHECK(all.moments(256).rows == (1 << 25) + 256);
  CHECK(all.moments(256).mean[0] == 1e6);
  all.scale(to.data(), 256, 256);
  CHECK(to[0] == 0);
  CHECK(to[1] == 0);
  CHECK(std::isfinite(to[2]));
  CHECK(to[3] == 1e30f);
}

TEST_CASE("what is left as it is has the mean 0 and the factor 1, and columns of no rows too") {
  StandardNumbers none({true}, {});
  none.finish();
  CHECK(none.ready());
  CHECK(none.scales()->mean[0] == 0);
  CHECK(none.scales()->factor[0] == 1);
}
