// Scored rows many at once, on every instruction set, against the same row by row.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "data/scored.h"
#include "leashed/base/philox.h"
#include "leashed/data/click_metrics.h"
#include "leashed/data/kernels.h"
#include "reference/click_metrics.h"

using namespace leashed;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();

// Logits of that size; labels, of which some are neither 0 nor 1; weights, of which some are 0.
Scored scored(std::size_t n, std::uint64_t seed, float size) {
  Scored s;
  for (std::size_t i = 0; i < n; ++i) {
    const auto words = philox(seed, 0, i);
    s.logits.push_back(size * static_cast<float>(static_cast<std::int32_t>(words[0])) * 0x1p-31f);
    s.labels.push_back(words[1] % 8 == 0 ? -1 : static_cast<std::int32_t>(words[1] % 4 == 1));
    s.weights.push_back(static_cast<float>(words[2] % 4) / 3);
  }
  return s;
}

bool close(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= 1e-9 * std::abs(b);
}

void check(const ClickMetrics& metrics, const reference::ClickMetrics& plain) {
  CHECK(close(metrics.log_loss(), plain.log_loss()));
  CHECK(close(metrics.normalised_entropy(), plain.normalised_entropy()));
  CHECK(close(metrics.calibration(), plain.calibration()));
  const auto [auc, error] = plain.area_under_curve();
  CHECK(close(metrics.area_under_curve().value, auc));
  CHECK(close(metrics.area_under_curve().error, error));
}

void check(const Scored& s) {
  for (const Isa isa : available_isas()) {
    for (const bool weighted : {false, true}) {
      INFO(s.size(), " rows, ", std::string(isa_name(isa)), weighted ? ", weighted" : "");
      ClickMetrics metrics(isa);
      metrics.add(s.logits, s.targets(weighted));
      reference::ClickMetrics plain;
      plain.add(s.logits, s.targets(weighted));
      CHECK(metrics.rows() == static_cast<double>(s.size()));
      check(metrics, plain);
    }
  }
}

}  // namespace

TEST_CASE("rows at once are what they are one by one, however many, small and large") {
  for (const std::size_t n : {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100, 20'000}) {
    for (const float size : {0.0f, 1e-40f, 1e-30f, 1e-4f, 1.0f, 5.0f, 100.0f, 700.0f, 1e30f}) {
      check(scored(n, 3, size));
    }
  }
}

TEST_CASE("extreme logits are right, infinitely wrong, or no number") {
  for (const float logit : {kInfinity, kLargest, 708.0f, 1e-45f, 0.0f, kNaN}) {
    for (const float sign : {1.0f, -1.0f}) {
      for (const std::size_t at : {0, 5, 15, 16, 18}) {
        for (const std::int32_t label : {0, 1}) {
          for (const float weight : {0.0f, 0.5f}) {
            Scored s = scored(19, 1, 3);
            s.logits[at] = sign * logit;
            s.labels[at] = label;
            s.weights[at] = weight;
            check(s);
          }
        }
      }
    }
  }
  // A probability that no double holds.
  for (const Isa isa : available_isas()) {
    ClickMetrics metrics(isa);
    const std::vector<std::int32_t> click = {1};
    metrics.add(std::vector<float>{-1000}, click.data());
    CHECK(metrics.log_loss() == 1000);
    CHECK(metrics.calibration() == 0);
  }
}

TEST_CASE("every float is in the bin of its upper half") {
  constexpr std::size_t kRows = 1 << 17, kPlaces = 1 << 17;
  Scored s = scored(kRows, 5, 1);
  for (std::size_t i = 0; i < kRows; ++i) {
    // Each upper half twice, with lower ones that carry, or do not, into it.
    const auto bits = static_cast<std::uint32_t>(i / 2) << 16 | philox(6, 0, i)[0] % 0x10000;
    s.logits[i] = std::bit_cast<float>(bits);
  }
  std::vector<std::uint64_t> counts(kPlaces);
  std::vector<double> weights(kPlaces);
  std::uint32_t blocks = 0;
  for (std::size_t i = 0; i < kRows; ++i) {
    const std::size_t bin = reference::ClickMetrics::bin_of(s.logits[i]);
    ++counts[2 * bin + (s.labels[i] == 1)];
    weights[2 * bin + (s.labels[i] == 1)] += double{s.weights[i]};
    blocks |= std::uint32_t{1} << (bin / (1 << 11));
  }
  for (const Isa isa : available_isas()) {
    const ScoreKernels& kernels = score_kernels(isa);
    std::vector<std::uint64_t> counted(kPlaces);
    std::vector<double> weighed(kPlaces);
    ScoreSums of_counted, of_weighed;
    kernels.count(s.logits.data(), s.labels.data(), kRows, counted.data(), of_counted);
    kernels.weigh(s.logits.data(), s.labels.data(), s.weights.data(), kRows, weighed.data(),
                  of_weighed);
    CHECK(counted == counts);
    CHECK(weighed == weights);
    CHECK(of_counted.blocks == blocks);
    CHECK(of_weighed.blocks == blocks);
  }
}

TEST_CASE("no row is lost in a long sum, of batches or of single rows") {
  const Scored part = scored(4099, 9, 4);
  reference::ClickMetrics plain;
  plain.add(part.logits, part.targets(false));
  for (const Isa isa : available_isas()) {
    constexpr std::size_t kParts = 4100;  // more than 2^24 rows
    ClickMetrics metrics(isa);
    for (std::size_t i = 0; i < kParts; ++i) metrics.add(part.logits, part.targets(false));
    CHECK(metrics.rows() == double{kParts} * 4099);
    check(metrics, plain);

    ClickMetrics singly(isa);
    for (std::size_t i = 0; i < part.size(); ++i) {
      singly.add(std::span(part.logits).subspan(i, 1), part.targets(false).from(i));
    }
    check(singly, plain);
  }
}

TEST_CASE("ties count half") {
  Scored s = scored(5000, 2, 0);
  for (std::size_t i = 0; i < s.size(); ++i) s.labels[i] = i % 2;
  for (const float logit : {0.0f, -1.5f, kInfinity}) {
    s.logits.assign(s.size(), logit);
    for (const Isa isa : available_isas()) {
      ClickMetrics metrics(isa);
      metrics.add(s.logits, s.targets(false));
      CHECK(metrics.area_under_curve().value == 0.5);
      CHECK(metrics.area_under_curve().error == 0.5);
    }
  }
}

TEST_CASE("rows with weights and without are counted together, and a copy goes its own way") {
  const Scored s = scored(1000, 4, 2);
  ClickMetrics metrics;
  reference::ClickMetrics plain;
  for (const bool weighted : {false, true}) {
    metrics.add(s.logits, s.targets(weighted));
    plain.add(s.logits, s.targets(weighted));
  }
  ClickMetrics copy(metrics), merged;
  merged.merge(metrics);
  check(merged, plain);
  metrics.clear();
  metrics.add(s.logits, s.targets(true));
  check(copy, plain);
  copy.add(s.logits, s.targets(false));
  plain.add(s.logits, s.targets(false));
  check(copy, plain);
}
