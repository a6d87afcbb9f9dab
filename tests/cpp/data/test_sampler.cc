#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "leashed/base/philox.h"
#include "leashed/data/sampler.h"

using leashed::philox, leashed::Sampler;

TEST_CASE("Philox4x32-10 gives the published test vectors") {
  using Words = std::array<std::uint32_t, 4>;
  CHECK(leashed::philox(0, 0, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const std::uint64_t ones = ~std::uint64_t{0};
  CHECK(leashed::philox(ones, ones, ones) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
}

TEST_CASE("each pass visits every row once, whatever the batch size") {
  for (const std::size_t rows : {1, 2, 3, 7, 64, 65, 1000}) {
    for (const std::size_t batch : {std::size_t{1}, std::size_t{3}, rows}) {
      const Sampler sampler(17, rows, batch);
      std::vector<std::size_t> stream;
      for (std::uint64_t k = 0; stream.size() < 3 * rows; ++k) {
        stream.resize((k + 1) * batch);
        sampler.batch(k, stream.data() + k * batch);
      }
      std::vector<std::size_t> expected(rows);
      std::iota(expected.begin(), expected.end(), 0);
      for (std::size_t pass = 0; pass < 3; ++pass) {
        const auto begin = stream.begin() + static_cast<std::ptrdiff_t>(pass * rows);
        std::vector<std::size_t> seen(begin, begin + static_cast<std::ptrdiff_t>(rows));
        std::sort(seen.begin(), seen.end());
        CHECK(seen == expected);
      }
    }
  }
}

TEST_CASE("a batch depends on the seed and its number alone") {
  std::vector<std::size_t> a(64), b(64), c(64);
  const Sampler one(1, 10000, 64), two(2, 10000, 64);
  one.batch(5, a.data());
  one.batch(4, b.data());
  one.batch(5, b.data());
  two.batch(5, c.data());
  CHECK(a == b);
  CHECK(a != c);
}

TEST_CASE("a batch is what the plain cipher says, position by position") {
  const auto mix = [](std::uint64_t x) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccd;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53;
    return x ^ x >> 33;
  };
  for (const std::uint64_t rows : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{7},
                                   std::uint64_t{1000}, std::uint64_t{1797}, std::uint64_t{65'537},
                                   (std::uint64_t{1} << 32) - 1, (std::uint64_t{1} << 63) + 5}) {
    unsigned bits = 0;
    while (bits < 64 && (rows - 1) >> bits) ++bits;
    const unsigned half = (std::max(bits, 1u) + 1) / 2;
    const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
    for (const std::size_t batch : {1u, 3u, 8u, 16u, 21u}) {
      const Sampler sampler(11, rows, batch);
      std::vector<std::size_t> got(batch);
      for (const std::uint64_t k : {0u, 1u, 77u, 4000u}) {
        sampler.batch(k, got.data());
        for (std::size_t i = 0; i < batch; ++i) {
          const std::uint64_t position = k * batch + i;
          const auto keys = philox(11, position / rows, 0);
          std::uint64_t value = position % rows;
          do {
            std::uint64_t left = value >> half, right = value & mask;
            for (const std::uint64_t key : keys) {
              left ^= mix(right + key) & mask;
              std::swap(left, right);
            }
            value = left << half | right;
          } while (value >= rows);
          REQUIRE(got[i] == value);
        }
      }
    }
  }
}

TEST_CASE("positions are spread evenly: no row is favoured at any place of the pass") {
  constexpr std::size_t kRows = 50, kPasses = 4000;
  std::vector<std::size_t> first(kRows), order(kRows);
  const Sampler sampler(3, kRows, kRows);
  for (std::uint64_t pass = 0; pass < kPasses; ++pass) {
    sampler.batch(pass, order.data());
    ++first[order[0]];
  }
  // Chi-square with 49 degrees of freedom: above 100 with a probability of 2e-5.
  double chi = 0;
  constexpr double kExpected = static_cast<double>(kPasses) / kRows;
  for (const std::size_t n : first) {
    chi += (static_cast<double>(n) - kExpected) * (static_cast<double>(n) - kExpected) / kExpected;
  }
  CHECK(chi < 100);
}
