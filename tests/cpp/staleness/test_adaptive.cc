// The policies that adapt to the staleness of the run, where that is in the thousands.
#include <doctest/doctest.h>

#include <cmath>

#include "leashed/staleness/adaptive.h"

using namespace leashed;

TEST_CASE("a fresh gradient counts in full under MindTheStep, however stale the others are") {
  for (const std::uint64_t mean : {400, 499, 501, 740, 800, 5000, 1'000'000}) {
    CAPTURE(mean);
    const MindTheStep policy(0, 1, 5, false);
    for (int i = 0; i < 10; ++i) policy.observe(mean);
    CHECK(policy.factor(0) == doctest::Approx(1).epsilon(1e-6));  // P[staleness ≥ 0]
    CHECK(policy.factor(2) < policy.factor(1));
    CHECK(policy.factor(1) == doctest::Approx(1.0 / static_cast<double>(mean)).epsilon(1e-6));
    CHECK(policy.factor(static_cast<double>(2 * mean)) < 1e-6);
  }
}
