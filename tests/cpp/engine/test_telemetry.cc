// What a worker finds of a stream's losses.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <thread>

#include "leashed/engine/telemetry.h"

using namespace leashed;

namespace {

std::map<std::uint64_t, PassLoss> passes_of(const StreamLoss& loss) {
  std::map<std::uint64_t, PassLoss> passes;
  loss.each([&](std::uint64_t pass, double mean, std::uint64_t rows) {
    passes[pass].add(mean * static_cast<double>(rows), rows);
  });
  return passes;
}

}  // namespace

TEST_CASE("the mean of a pass is that of its rows, also past what a float can tell apart") {
  StreamLoss loss;
  CHECK(passes_of(loss).empty());
  constexpr std::uint64_t kMany = std::uint64_t{1} << 25;
  loss.add(0, 0, 1, kMany);
  for (std::uint64_t i = 0; i < 1000; ++i) loss.add(kMany + i, 0, 3, 1);
  loss.add(kMany + 1000, 0, 9, 0);
  auto passes = passes_of(loss);
  REQUIRE(passes.size() == 1);
  CHECK(passes[0].rows == kMany + 1000);
  const double all = static_cast<double>(kMany);
  CHECK(passes[0].mean() == doctest::Approx((all + 3000) / (all + 1000)).epsilon(1e-12));
}

TEST_CASE("two passes are kept, and a late batch of the first is of that") {
  StreamLoss loss;
  loss.add(80, 20, 2, 10);
  loss.add(100, 20, 1, 10);
  loss.add(90, 20, 4, 10);
  auto passes = passes_of(loss);
  REQUIRE(passes.size() == 2);
  CHECK(passes[4].mean() == 3);
  CHECK(passes[5].mean() == 1);
  loss.add(120, 20, 7, 1);
  passes = passes_of(loss);
  REQUIRE(passes.size() == 2);
  CHECK(passes[6].mean() == 7);
}

TEST_CASE("a batch of several passes counts for each by its rows") {
  StreamLoss loss;
  loss.add(0, 0, 1, 8);   // not known yet how many a pass has, and all are of the first
  loss.add(8, 10, 6, 8);  // 2 rows of that, and 6 of the second
  auto passes = passes_of(loss);
  REQUIRE(passes.size() == 2);
  CHECK(passes[0].rows == 10);
  CHECK(passes[0].mean() == doctest::Approx(2));
  CHECK(passes[1].rows == 6);
  loss.add(16, 10, 2, 4);   // to the end of the second
  loss.add(20, 10, 5, 10);  // all of the third
  passes = passes_of(loss);
  CHECK(passes[1].rows == 10);
  CHECK(passes[1].mean() == doctest::Approx(4.4));
  CHECK(passes[2].rows == 10);
  CHECK(passes[2].mean() == 5);
  loss.add(30, 10, 3, 44);  // four whole ones, and some of the eighth
  passes = passes_of(loss);
  REQUIRE(passes.size() == 2);
  CHECK(passes[6].rows == 10);
  CHECK(passes[7].rows == 4);
}

TEST_CASE("who looks meanwhile sees means of rows, and after the end all of them") {
  StreamLoss loss;
  std::thread worker([&] {
    for (std::uint64_t i = 0; i < 20000; ++i) {
      loss.add(3 * i, 300, 1 + static_cast<double>(i % 2), 3);
    }
  });
  for (int looks = 0; looks < 100; ++looks) {
    for (const auto& [pass, of] : passes_of(loss)) CHECK(std::abs(of.mean() - 1.5) < 0.51);
  }
  worker.join();
  const auto passes = passes_of(loss);
  REQUIRE(passes.size() == 2);
  for (const auto& [pass, of] : passes) {
    CHECK(of.rows == 300);
    CHECK(of.mean() == doctest::Approx(1.5));
  }
}
