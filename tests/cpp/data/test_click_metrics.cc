// Metrics of clicks against all pairs and plain sums.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "data/scored.h"
#include "leashed/base/philox.h"
#include "leashed/data/click_metrics.h"

using namespace leashed;

namespace {

// Logits that know something of the labels, of many sizes and with ties.
Scored scored(std::size_t n, std::uint64_t seed, float size) {
  Scored s;
  for (std::size_t i = 0; i < n; ++i) {
    const auto words = philox(seed, 0, i);
    const auto z = static_cast<float>(static_cast<std::int32_t>(words[0])) * 0x1p-31f;
    s.labels.push_back(words[1] % 4 == 0);
    s.logits.push_back(i % 5 == 0 ? 0.0f : size * (z + 0.3f * static_cast<float>(s.labels[i])));
    s.weights.push_back(static_cast<float>(words[2] % 4) / 2);
  }
  return s;
}

double exact_auc(const Scored& s, bool weighted) {
  double won = 0, pairs = 0;
  for (std::size_t i = 0; i < s.labels.size(); ++i) {
    for (std::size_t j = 0; j < s.labels.size(); ++j) {
      if (s.labels[i] != 1 || s.labels[j] == 1) continue;
      const double w = weighted ? double{s.weights[i]} * double{s.weights[j]} : 1;
      pairs += w;
      won += w * (s.logits[i] > s.logits[j] ? 1 : s.logits[i] == s.logits[j] ? 0.5 : 0);
    }
  }
  return won / pairs;
}

}  // namespace

TEST_CASE("the AUC is within its bound of that of all pairs, the rest is what plain sums are") {
  for (const float size : {1e-30f, 1e-3f, 1.0f, 5.0f, 1e30f}) {
    for (const bool weighted : {false, true}) {
      const Scored s = scored(1500, 3, size);
      ClickMetrics metrics;
      metrics.add(s.logits, s.targets(weighted));
      const auto [auc, error] = metrics.area_under_curve();
      CHECK(std::abs(auc - exact_auc(s, weighted)) <= error + 1e-12);
      CHECK(error < 0.05);

      double loss = 0, total = 0, clicks = 0, expected = 0;
      for (std::size_t i = 0; i < s.labels.size(); ++i) {
        const double w = weighted ? double{s.weights[i]} : 1, z = s.logits[i];
        const double wrong = s.labels[i] == 1 ? -z : z;
        loss += w * (wrong > 30 ? wrong : std::log1p(std::exp(wrong)));
        expected += w / (1 + std::exp(-z));
        clicks += w * s.labels[i];
        total += w;
      }
      const double p = clicks / total;
      CHECK(metrics.log_loss() == doctest::Approx(loss / total));
      CHECK(metrics.calibration() == doctest::Approx(expected / clicks));
      CHECK(metrics.normalised_entropy() ==
            doctest::Approx(loss / total / (-p * std::log(p) - (1 - p) * std::log(1 - p))));
    }
  }
}

TEST_CASE("the bins keep the order of floats, and zero is one number") {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> rising = {-inf, -1e38f, -2, -1, -1e-40f, 0, 1e-40f, 1e-3f, 1, 2, inf};
  for (std::size_t i = 1; i < rising.size(); ++i) {
    if (rising[i] - rising[i - 1] < 1e-39f) continue;  // one bin for the smallest
    ClickMetrics metrics;
    const std::vector<std::int32_t> labels = {0, 1};
    metrics.add(std::vector<float>{rising[i - 1], rising[i]}, labels.data());
    CHECK(metrics.area_under_curve().value == 1);
    CHECK(metrics.area_under_curve().error == 0);
  }
  ClickMetrics zeros;
  const std::vector<std::int32_t> labels = {0, 1};
  zeros.add(std::vector<float>{0.0f, -0.0f}, labels.data());
  CHECK(zeros.area_under_curve().value == 0.5);
}

TEST_CASE("parts that are merged are the whole") {
  const Scored s = scored(1000, 8, 2);
  ClickMetrics whole, first, second;
  whole.add(s.logits, s.targets(true));
  const std::span<const float> logits(s.logits);
  first.add(logits.first(300), s.targets(true));
  second.add(logits.subspan(300), s.targets(true).from(300));
  second.add({}, Targets());
  first.merge(second);
  CHECK(first.rows() == 1000);
  CHECK(first.area_under_curve().value == doctest::Approx(whole.area_under_curve().value));
  CHECK(first.area_under_curve().error == doctest::Approx(whole.area_under_curve().error));
  CHECK(first.log_loss() == doctest::Approx(whole.log_loss()));
  CHECK(first.calibration() == doctest::Approx(whole.calibration()));
  first.clear();
  CHECK(first.rows() == 0);
  CHECK(std::isnan(first.log_loss()));
}

TEST_CASE("counts go on past what a float can tell apart") {
  ClickMetrics metrics;
  constexpr std::size_t kPart = 1 << 12;
  const std::vector<float> logits(kPart, 1.0f);
  const std::vector<std::int32_t> ones(kPart, 1), zeros(kPart, 0);
  metrics.add(logits, ones.data());
  for (int doubling = 0; doubling < 13; ++doubling) metrics.merge(metrics);  // 2^25 clicks
  const std::vector<float> low(1, -1.0f);
  metrics.add(low, zeros.data());
  metrics.add(logits, zeros.data());
  CHECK(metrics.rows() == (1 << 25) + 1 + kPart);
  // One click more or less below another is 1 part in 2^25 · 4097.
  const double others = 1 + kPart;
  CHECK(metrics.area_under_curve().value == doctest::Approx((1 + kPart / 2.0) / others));
  const double expected = 1 / (1 + std::exp(-1.0)) * ((1 << 25) + kPart) + 1 / (1 + std::exp(1.0));
  CHECK(metrics.calibration() == doctest::Approx(expected / (1 << 25)).epsilon(1e-9));
}

TEST_CASE("the entropy of a share that rounds to 1 is a number") {
  for (const std::int32_t click : {0, 1}) {
    for (const float rare : {1e-3f, 1e-17f, 1e-30f}) {
      const std::vector<std::int32_t> labels = {1 - click, click};
      const std::vector<float> weights = {1, rare};
      Targets targets(labels.data());
      targets.weights = weights.data();
      ClickMetrics metrics;
      metrics.add(std::vector<float>{0, 0}, targets);
      const double p = double{rare} / (1 + double{rare});
      const double entropy = -p * std::log(p) - (1 - p) * std::log1p(-p);
      CHECK(metrics.normalised_entropy() == doctest::Approx(std::log(2.0) / entropy));
    }
  }
}

TEST_CASE("what cannot be told is NaN, and a NaN is not passed over") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<std::int32_t> labels = {1, 0, 1, 0};
  ClickMetrics metrics;
  CHECK(std::isnan(metrics.log_loss()));
  CHECK(std::isnan(metrics.area_under_curve().value));
  metrics.add(std::vector<float>{0.5f}, labels.data());
  CHECK(std::isnan(metrics.area_under_curve().value));
  CHECK(std::isnan(metrics.normalised_entropy()));
  CHECK(metrics.calibration() < 1);
  CHECK(metrics.log_loss() == doctest::Approx(std::log1p(std::exp(-0.5))));

  ClickMetrics right, wrong, ignored;
  right.add(std::vector<float>{inf, -inf}, labels.data());
  CHECK(right.log_loss() == 0);
  CHECK(right.area_under_curve().value == 1);
  wrong.add(std::vector<float>{-inf, -inf}, labels.data());
  CHECK(std::isinf(wrong.log_loss()));
  CHECK(wrong.area_under_curve().value == 0.5);
  Targets none(labels.data());
  const std::vector<float> weights = {0, 1, 1, 0};
  none.weights = weights.data();
  ignored.add(std::vector<float>{-inf, -1, 1, inf}, none);
  CHECK(ignored.log_loss() == doctest::Approx(std::log1p(std::exp(-1.0))));
  CHECK(ignored.area_under_curve().value == 1);

  metrics.add(std::vector<float>{1, nan}, labels.data());
  CHECK(std::isnan(metrics.log_loss()));
  CHECK(std::isnan(metrics.area_under_curve().value));
  CHECK(std::isnan(metrics.normalised_entropy()));
  CHECK(std::isnan(metrics.calibration()));
}
