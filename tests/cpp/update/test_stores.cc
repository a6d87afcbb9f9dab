#include <doctest/doctest.h>

#include "leashed/update/stores.h"

using namespace leashed;

namespace {

// The share of updates [from, to) that streamed, where they take so long either way.
double streamed_share(StoreChoice& choice, std::uint64_t from, std::uint64_t to, double cached,
                      double streamed) {
  std::uint64_t count = 0;
  for (std::uint64_t t = from; t < to; ++t) {
    const bool past = choice.at(t) == Stores::streamed;
    choice.took(t, past ? streamed : cached);
    count += past;
  }
  return static_cast<double>(count) / static_cast<double>(to - from);
}

}  // namespace

TEST_CASE("an update streams where that is several times as fast, and follows when that changes") {
  StoreChoice choice(2, 100'000);
  CHECK(streamed_share(choice, 0, 20'000, 30e-6, 30e-6) < 0.02);
  CHECK(streamed_share(choice, 20'000, 40'000, 250e-6, 40e-6) > 0.95);
  CHECK(streamed_share(choice, 40'000, 60'000, 30e-6, 30e-6) < 0.15);
}

TEST_CASE("a thread that is interrupted once changes nothing") {
  StoreChoice choice(2, 100'000);
  streamed_share(choice, 0, 5'000, 30e-6, 30e-6);
  choice.took(5'000, 10e-3);
  CHECK(choice.at(5'001) == Stores::cached);
}

TEST_CASE("one worker, or a short vector, stores through the caches") {
  StoreChoice alone(1, 100'000), small(8, 100);
  CHECK(streamed_share(alone, 0, 10'000, 250e-6, 1e-6) == 0);
  CHECK(streamed_share(small, 0, 10'000, 250e-6, 1e-6) == 0);
}
