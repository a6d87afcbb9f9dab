// AUC by user against all pairs of each user; what stays of a sample is whole, and is the same
// whoever counted which rows.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "leashed/base/philox.h"
#include "leashed/data/user_sample.h"

using namespace leashed;

namespace {

struct Rows {
  std::vector<float> logits, weights;
  std::vector<std::int32_t> labels;
  std::vector<std::uint64_t> users;

  Targets targets(bool weighted) const {
    Targets t(labels.data());
    if (weighted) t.weights = weights.data();
    t.users = users.data();
    return t;
  }
  void add_to(UserSample& sample, std::size_t first, std::size_t count, bool weighted) const {
    sample.add(std::span(logits).subspan(first, count), targets(weighted).from(first));
  }
};

// Ties, users with few rows and with many, weights of which some are 0.
Rows drawn(std::size_t n, std::uint64_t users) {
  Rows rows;
  for (std::size_t i = 0; i < n; ++i) {
    const auto words = philox(7, 0, i);
    rows.users.push_back(words[0] % (i % 3 == 0 ? 5 : users));
    rows.labels.push_back(words[1] % 3 == 0);
    rows.logits.push_back(static_cast<float>(words[2] % 16) / 4 - 2);
    rows.weights.push_back(static_cast<float>(words[3] % 4) / 2);
  }
  return rows;
}

struct Auc {
  double value, weight;
};

// Of each user that has both labels.
std::map<std::uint64_t, Auc> by_user(const Rows& rows, bool weighted) {
  std::map<std::uint64_t, std::vector<std::size_t>> of;
  for (std::size_t i = 0; i < rows.users.size(); ++i) of[rows.users[i]].push_back(i);
  std::map<std::uint64_t, Auc> found;
  const auto weight = [&](std::size_t i) { return weighted ? double{rows.weights[i]} : 1; };
  for (const auto& [user, own] : of) {
    double won = 0, pairs = 0, all = 0;
    for (const std::size_t i : own) {
      all += weight(i);
      for (const std::size_t j : own) {
        if (rows.labels[i] != 1 || rows.labels[j] == 1) continue;
        const float a = rows.logits[i], b = rows.logits[j];
        pairs += weight(i) * weight(j);
        won += weight(i) * weight(j) * (a > b ? 1 : a == b ? 0.5 : 0);
      }
    }
    if (pairs > 0) found[user] = {won / pairs, all};
  }
  return found;
}

double mean(const std::map<std::uint64_t, Auc>& users) {
  double sum = 0, weights = 0;
  for (const auto& [user, auc] : users) {
    sum += auc.weight * auc.value;
    weights += auc.weight;
  }
  return sum / weights;
}

}  // namespace

TEST_CASE("where everybody is kept it is the mean over all users") {
  for (const bool weighted : {false, true}) {
    const Rows rows = drawn(3000, 200);
    const auto users = by_user(rows, weighted);
    UserSample whole(3000), first(3000), second(3000);
    rows.add_to(whole, 0, 3000, weighted);
    rows.add_to(first, 0, 1000, weighted);
    rows.add_to(second, 1000, 2000, weighted);
    first.merge(second);
    for (UserSample* sample : {&whole, &first}) {
      const auto [value, error, count, share] = sample->area_under_curves();
      CHECK(value == doctest::Approx(mean(users)).epsilon(1e-12));
      CHECK(error == 0);
      CHECK(count == users.size());
      CHECK(share == 1);
    }
    CHECK(first.area_under_curves().value == whole.area_under_curves().value);
  }
}

TEST_CASE("a full sample keeps part of the users, each with all rows, and says how far it may be") {
  constexpr std::size_t kRows = 40'000, kMost = 4'000, kParts = 4;
  const Rows rows = drawn(kRows, 3'000);
  const double exact = mean(by_user(rows, false));
  UserSample whole(kMost), merged(kMost);
  rows.add_to(whole, 0, kRows, false);
  for (std::size_t part = 0; part < kParts; ++part) {  // every fourth batch each
    UserSample own(kMost / kParts);
    for (std::size_t i = part * 100; i < kRows; i += kParts * 100) rows.add_to(own, i, 100, false);
    merged.merge(own);
  }
  CHECK(merged.halvings() >= whole.halvings());
  for (UserSample* sample : {&whole, &merged}) {
    const auto [value, error, count, share] = sample->area_under_curves();
    CHECK(share == std::ldexp(1.0, -static_cast<int>(sample->halvings())));
    CHECK(share < 0.5);
    CHECK(count > 10);
    CHECK(std::abs(value - exact) < 2 * error);
    CHECK(error < 0.1);
  }
  // Another one that begins with as few users finds the same of them.
  UserSample few(kRows);
  few.clear(merged.halvings());
  rows.add_to(few, 0, kRows, false);
  CHECK(few.area_under_curves().value == merged.area_under_curves().value);
}

namespace {

// What workers and a monitor do, in an order that is drawn: each part of the rows goes to somebody,
// who may hand over what he has, and a window of what was handed over goes into the total.
UserSample counted_by_several(const Rows& rows, std::size_t most, std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::size_t workers = 1 + below(6), at_once = 1 + below(most / (8 * workers));
  UserLimit limit(most);
  const bool shared = below(3) > 0;
  std::vector<UserSample> own(workers, UserSample(most, shared ? &limit : nullptr, at_once));
  UserSample window(most), total(most);
  const auto collect = [&](UserSample& sample) {
    window.merge(sample);
    sample.clear(total.halvings());
  };
  const std::size_t often = 1 + below(40), last = below(workers + 1);
  const std::size_t n = rows.users.size();
  for (std::size_t begin = 0, size; begin < n; begin += size) {
    size = std::min(n - begin, 1 + below(300));
    // Of some runs the last worker has most of the rows.
    const std::size_t worker = below(10) < last ? workers - 1 : below(workers);
    rows.add_to(own[worker], begin, size, true);
    if (below(often) == 0) collect(own[below(workers)]);
    if (below(often) > 0) continue;
    total.merge(window);
    window.clear();
  }
  for (UserSample& sample : own) collect(sample);
  total.merge(window);
  return total;
}

}  // namespace

TEST_CASE("who is kept, and what they tell, does not depend on who counted whom") {
  constexpr std::size_t kRows = 8'000;
  Rows rows = drawn(kRows, 900);
  // Sums of these depend on their order.
  for (std::size_t i = 0; i < kRows; ++i) rows.weights[i] *= 1.0f / static_cast<float>(i % 97 + 3);
  for (const std::size_t most : std::initializer_list<std::size_t>{50, 400, 1'000, 2'500}) {
    UserSample whole(most);
    rows.add_to(whole, 0, kRows, true);
    const auto [value, error, users, share] = whole.area_under_curves();
    REQUIRE(users > 0);
    REQUIRE(share < 1);
    UserSample one_more(kRows);  // who would be kept with one halving less would not fit
    one_more.clear(whole.halvings() - 1);
    rows.add_to(one_more, 0, kRows, true);
    CHECK(one_more.rows() > most);
    for (std::uint32_t seed = 0; seed < 200; ++seed) {
      CAPTURE(seed);
      UserSample total = counted_by_several(rows, most, seed);
      CHECK(total.rows() == whole.rows());
      const auto several = total.area_under_curves();
      CHECK(several.value == value);
      CHECK((several.error == error || users == 1));
      CHECK(several.users == users);
      CHECK(several.share == share);
    }
  }
}

TEST_CASE("samples that share a limit have no more rows than it, together") {
  constexpr std::size_t kRows = 40'000, kMost = 2'000, kWorkers = 5, kAtOnce = 10, kBatch = 20;
  const Rows rows = drawn(kRows, 3'000);
  UserLimit limit(kMost);
  std::vector<UserSample> own(kWorkers, UserSample(kMost, &limit, kAtOnce));
  std::size_t most_held = 0;
  for (std::size_t begin = 0; begin < kRows; begin += kBatch) {
    // The first one, and after it those to which all others leave most of the work.
    const std::size_t i = begin / kBatch, favoured = begin * kWorkers / kRows;
    rows.add_to(own[i % 3 == 0 ? i / 3 % kWorkers : favoured], begin, kBatch, false);
    std::size_t held = 0;
    for (const UserSample& sample : own) held += sample.rows();
    most_held = std::max(most_held, held);
  }
  // Each one sees a limit that fell with its next batch.
  CHECK(most_held < 2 * kMost);
  CHECK(most_held > kMost / 2);
  for (UserSample& sample : own) rows.add_to(sample, 0, 0, false);
  std::size_t held = 0;
  for (const UserSample& sample : own) held += sample.rows();
  CHECK(held <= kMost + kWorkers * kAtOnce);
  CHECK(held > kMost / 4);
}

TEST_CASE("one user alone may be too much") {
  UserSample sample(10);
  Rows rows = drawn(100, 1);
  for (std::uint64_t& user : rows.users) user = 0x9e3779b97f4a7c15;  // of the hash 0
  rows.add_to(sample, 0, 100, false);
  CHECK(sample.area_under_curves().users == 0);
  CHECK(std::isnan(sample.area_under_curves().value));
}

TEST_CASE("what cannot be told is NaN") {
  const float inf = std::numeric_limits<float>::infinity();
  Rows rows{{inf, -inf, 0, 1}, {1, 1, 0, 1}, {1, 0, 1, 1}, {1, 1, 2, 2}};
  UserSample sample(10);
  CHECK(std::isnan(sample.area_under_curves().value));
  rows.add_to(sample, 2, 2, true);  // of one label
  CHECK(std::isnan(sample.area_under_curves().value));
  rows.add_to(sample, 0, 2, true);
  CHECK(sample.area_under_curves().value == 1);
  rows.logits[2] = std::nanf("");
  rows.add_to(sample, 2, 1, true);  // of weight 0
  CHECK(sample.area_under_curves().value == 1);
  rows.add_to(sample, 2, 1, false);
  CHECK(std::isnan(sample.area_under_curves().value));
  sample.clear();
  CHECK(sample.area_under_curves().users == 0);
}
