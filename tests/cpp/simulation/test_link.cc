#include <doctest/doctest.h>

#include <limits>

#include "leashed/simulation/link.h"

using namespace leashed;

TEST_CASE("what is sent over a link goes one after the other, and then takes the latency") {
  Link link;
  CHECK(link.carry(0, 1000, 1e9, 1e-6) == 2000);
  CHECK(link.carry(500, 1000, 1e9, 1e-6) == 3000);   // queues behind the first
  CHECK(link.carry(5000, 1000, 1e9, 1e-6) == 7000);  // and the link has been idle
}

TEST_CASE("a link without a limit takes the latency alone, and time does not pass its end") {
  Link link;
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  CHECK(link.carry(7, std::size_t{1} << 40, kInfinite, 0) == 7);
  CHECK(link.carry(7, std::size_t{1} << 40, 1e-9, 1) == std::numeric_limits<std::int64_t>::max());
  CHECK(link.carry(9, 1, 1e9, 1) == std::numeric_limits<std::int64_t>::max());
}
