// What histograms keep of large values.
#include <doctest/doctest.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "leashed/engine/histogram.h"

using namespace leashed;

TEST_CASE("large counts are exact, and take memory for different values only") {
  CountHistogram histogram;
  constexpr std::uint64_t kMany = std::uint64_t{1} << 40;
  histogram.add(3, 5);
  histogram.add(CountHistogram::kBins, 2);
  histogram.add(50000, kMany);
  histogram.add(50000, kMany);
  std::vector<std::uint64_t> now, exact;
  histogram.merge_bins_into(now);
  histogram.merge_into(exact);
  CHECK(now[3] == 5);
  CHECK(now[CountHistogram::kBins] == 2 + 2 * kMany);
  REQUIRE(exact.size() == 50001);
  CHECK(exact[3] == 5);
  CHECK(exact[CountHistogram::kBins] == 2);
  CHECK(exact[50000] == 2 * kMany);
}

TEST_CASE("the monitor's view of counts is exact in the thousands, as the run's end is") {
  CountHistogram counts;
  for (const std::uint64_t value : {0, 1023, 1024, 4000, 4000, 16383}) counts.add(value);
  counts.add(4001, 3);
  std::vector<std::uint64_t> now(5, 1), after;
  counts.merge_bins_into(now);
  counts.merge_into(after);
  CHECK(now.size() == 16384);
  CHECK(now[0] == 2);  // on top of what was there
  for (const std::size_t value : {1023, 1024, 16383}) CHECK(now[value] == 1);
  CHECK(now[4000] == 2);
  CHECK(now[4001] == 3);
  now[0] = 1, now[1] = now[2] = now[3] = now[4] = 0;
  CHECK(now == after);
}

TEST_CASE("what is beyond the bins is one bin for the monitor, and exact at the end") {
  CountHistogram counts;
  counts.add(20000, 2);
  counts.add(3);
  std::vector<std::uint64_t> now, after;
  counts.merge_bins_into(now);
  counts.merge_into(after);
  CHECK(now.size() == CountHistogram::kBins + 1);
  CHECK(now.back() == 2);
  CHECK(now[3] == 1);
  CHECK(after.size() == 20001);
  CHECK(after.back() == 2);
}

TEST_CASE("the monitor reads while the worker counts") {
  CountHistogram counts;
  std::atomic<bool> done = false;
  std::jthread worker([&] {
    for (std::uint64_t i = 0; i < 100000; ++i) counts.add(i * 7 % 12000);
    done = true;
  });
  std::uint64_t last = 0;
  while (!done) {
    std::vector<std::uint64_t> now;
    counts.merge_bins_into(now);
    const auto seen = std::accumulate(now.begin(), now.end(), std::uint64_t{0});
    CHECK(seen >= last);
    last = seen;
  }
  worker.join();
  std::vector<std::uint64_t> end;
  counts.merge_bins_into(end);
  CHECK(std::accumulate(end.begin(), end.end(), std::uint64_t{0}) == 100000);
}
