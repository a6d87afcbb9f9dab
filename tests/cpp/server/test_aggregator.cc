#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "leashed/server/aggregator.h"

using namespace leashed;

namespace {

using Parts = std::vector<Aggregator::Part>;

constexpr std::size_t kDimension = 1003;

// Of every size, so that the order of a sum tells in its last bits.
std::vector<std::vector<float>> random_slots(std::size_t slots) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-12, 12);
  std::vector<std::vector<float>> values(slots, std::vector<float>(kDimension));
  for (auto& slot : values) {
    for (float& v : slot) v = std::ldexp(normal(random), exponent(random));
  }
  return values;
}

// As it is meant: one after the other in the order of the parts, then the share. A product and its
// sum may be rounded once: what a compiler makes of them on processors that can.
std::vector<float> reference(const std::vector<std::vector<float>>& slots, const Parts& parts,
                             double divisor, bool once) {
  std::vector<float> sum(kDimension);
  for (const auto& [slot, weight] : parts) {
    for (std::size_t i = 0; i < kDimension; ++i) {
      const auto factor = static_cast<float>(weight);
      const volatile float product = factor * slots[slot][i];
      sum[i] = once ? std::fma(factor, slots[slot][i], sum[i]) : sum[i] + product;
    }
  }
  for (float& v : sum) v *= static_cast<float>(1 / divisor);
  return sum;
}

}  // namespace

TEST_CASE("a mean has the bits of a sum in the order of its parts, whatever their weights") {
  const auto slots = random_slots(11);
  Aggregator aggregator(kDimension);
  for (std::uint32_t slot = 0; slot < slots.size(); ++slot) {
    AlignedArray<float> values(kDimension);
    std::copy_n(slots[slot].data(), kDimension, values.data());
    aggregator.hold(slot, values);
    CHECK(values.size() == kDimension);
  }
  const auto check = [&](const Parts& parts, double divisor) {
    const float* const mean = aggregator.begin(parts, divisor);
    aggregator.add(0, 528);
    aggregator.add(528, kDimension);
    const std::vector<float> found(mean, mean + kDimension);
    CHECK((found == reference(slots, parts, divisor, false) ||
           found == reference(slots, parts, divisor, true)));
  };
  Parts all, reversed;
  for (std::uint32_t slot = 0; slot < slots.size(); ++slot) {
    all.push_back({slot, 1});
    reversed.insert(reversed.begin(), {slot, 1});
    check(all, static_cast<double>(all.size()));
    check(reversed, static_cast<double>(all.size()));
    check(all, static_cast<double>(all.size()) + 1);  // of more than were kept
  }
  all[4].weight = 0.3;
  check(all, static_cast<double>(all.size()));
  all[4].weight = 0;
  check(all, static_cast<double>(all.size()));
}

TEST_CASE("without parts a mean is 0") {
  Aggregator aggregator(3);
  const float* const mean = aggregator.begin({}, 2);
  aggregator.add(0, 3);
  CHECK(std::vector<float>(mean, mean + 3) == std::vector<float>(3));
}
