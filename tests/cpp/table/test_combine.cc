// Distinct ids beside a plain map.
#include <doctest/doctest.h>

#include <map>
#include <random>

#include "leashed/table/combine.h"

using namespace leashed;

TEST_CASE("ids are combined in the order of their first appearance, batch after batch") {
  std::mt19937_64 random(1);
  Combiner combiner;
  std::vector<std::uint64_t> distinct;
  for (const std::size_t size : {0, 1, 3000, 2, 700, 700, 5000, 1}) {
    for (const std::uint64_t spread : {1, 50, 1 << 20}) {
      std::vector<std::uint64_t> ids(size), expected;
      std::vector<std::uint32_t> places(size);
      std::map<std::uint64_t, std::uint32_t> seen;
      for (auto& id : ids) id = random() % spread * 0x100000001;
      combiner.begin(size, distinct);
      combiner.add(ids.data(), size / 3, places.data());  // two features
      combiner.add(ids.data() + size / 3, size - size / 3, places.data() + size / 3);
      for (std::size_t i = 0; i < size; ++i) {
        const auto [found, added] = seen.try_emplace(ids[i], expected.size());
        if (added) expected.push_back(ids[i]);
        REQUIRE(places[i] == found->second);
      }
      CHECK(distinct == expected);
    }
  }
}
