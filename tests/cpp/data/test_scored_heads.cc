// Metrics of several labels a row, each against the plain metrics of its own known rows.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <vector>

#include "leashed/base/philox.h"
#include "leashed/data/indexed_batches.h"
#include "leashed/data/scored_heads.h"

using namespace leashed;

namespace {

constexpr std::size_t kHeads = 3, kRows = 200;

struct Several {
  Several() {
    for (std::size_t i = 0; i < kRows * kHeads; ++i) {
      const auto words = philox(7, 0, i);
      const auto z = static_cast<float>(static_cast<std::int32_t>(words[0])) * 0x1p-31f;
      const bool known = i % kHeads == 0 || words[2] % 3 > 0;
      values.push_back(known ? static_cast<float>(words[1] % 2) : std::nanf(""));
      logits.push_back(z + (values.back() == 1 ? 0.5f : 0.0f));
    }
    for (std::size_t i = 0; i < kRows; ++i) {
      weights.push_back(static_cast<float>(philox(8, 0, i)[0] % 3));
      users.push_back(philox(9, 0, i)[0] % 11);
    }
  }
  Targets targets() const {
    Targets all(values.data(), kHeads);
    all.weights = weights.data();
    all.users = users.data();
    return all;
  }
  // One head's rows that are known.
  Scores alone(std::size_t head) const {
    std::vector<float> own, heavy;
    std::vector<std::int32_t> labels;
    std::vector<std::uint64_t> whose;
    for (std::size_t i = 0; i < kRows; ++i) {
      const float value = values[i * kHeads + head];
      if (std::isnan(value)) continue;
      own.push_back(logits[i * kHeads + head]);
      labels.push_back(static_cast<std::int32_t>(value));
      heavy.push_back(weights[i]);
      whose.push_back(users[i]);
    }
    Targets known(labels.data());
    known.weights = heavy.data();
    known.users = whose.data();
    ScoredRows rows(1000);
    rows.add(own, known);
    return rows.scores();
  }

  std::vector<float> logits, values, weights;
  std::vector<std::uint64_t> users;
};

}  // namespace

TEST_CASE("each head is scored on the rows of which its label is known, in whatever parts") {
  const Several several;
  std::deque<UserLimit> limits;
  for (std::size_t k = 0; k < kHeads; ++k) limits.emplace_back(1000);
  ScoredHeads heads(kHeads, 1000, &limits), others(kHeads, 1000, &limits);
  CHECK(heads.empty());
  constexpr std::size_t kFirst = 90;
  heads.add(several.logits.data(), kFirst, several.targets());
  others.add(several.logits.data() + kFirst * kHeads, kRows - kFirst,
             several.targets().from(kFirst));
  heads.merge(others);
  CHECK_FALSE(heads.empty());
  const std::vector<Scores> scores = heads.scores();
  REQUIRE(scores.size() == kHeads);
  for (std::size_t k = 0; k < kHeads; ++k) {
    const Scores expected = several.alone(k);
    CHECK(scores[k].rows == expected.rows);
    CHECK(scores[k].auc == doctest::Approx(expected.auc));
    CHECK(scores[k].log_loss == doctest::Approx(expected.log_loss));
    CHECK(scores[k].gauc == doctest::Approx(expected.gauc));
    CHECK(scores[k].users == expected.users);
  }
  CHECK(scores[0].rows == kRows);
  CHECK(scores[1].rows < kRows);
  heads.clear();
  CHECK(heads.empty());
}

TEST_CASE("a batch has all values of its rows") {
  const Several several;
  std::vector<float> x(kRows);
  for (std::size_t i = 0; i < kRows; ++i) x[i] = static_cast<float>(i);
  const DatasetView data{x.data(), several.targets(), kRows, 1};
  const IndexedBatches batches(data, 32, 5);
  Batch batch;
  for (std::uint64_t k = 0; k < 10; ++k) {
    batches.fill(k, batch);
    REQUIRE(batch.view.targets.width == kHeads);
    for (std::size_t i = 0; i < batch.view.size; ++i) {
      const auto row = static_cast<std::size_t>(*batch.view.rows[i]);
      for (std::size_t h = 0; h < kHeads; ++h) {
        const float found = batch.view.targets.values[i * kHeads + h];
        const float expected = several.values[row * kHeads + h];
        CHECK((found == expected || (std::isnan(found) && std::isnan(expected))));
      }
    }
  }
}
