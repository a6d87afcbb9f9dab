#include "leashed/data/clicks.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "leashed/base/philox.h"
#include "leashed/base/team.h"
#include "leashed/data/uniform.h"

namespace leashed {
namespace {

using Words = std::array<std::uint32_t, 4>;

// What a key is for; each with numbers of its own.
enum class Purpose : std::uint32_t { train, test, calibration, model, moves };

std::uint64_t key_of(std::uint64_t seed, Purpose purpose, std::uint32_t number) {
  return leashed::key_of(seed, static_cast<std::uint64_t>(purpose), number);
}

// In a row's counters: the words of its numbers and label, and from kIds those of its ids, two a
// counter, so many further for each attempt.
constexpr std::uint64_t kIds = 4;
constexpr std::uint64_t kAttempt = std::uint64_t{1} << 32;
constexpr std::uint64_t kTold = std::uint64_t{1} << 31;  // beyond the ids
static_assert(ClickGenerator::kNumbers + 1 <= 4 * kIds);

// Number j: the logarithms of its counts are exponential, of this mean, and so many are missing.
// As in Criteo's, some are mostly 0 or 1 and some go into millions, and a few are always there.
constexpr std::array<double, ClickGenerator::kNumbers> kMean = {0.9, 1.4, 1.2, 0.8, 2.4, 1.6, 1.0,
                                                                0.9, 1.8, 0.4, 0.6, 0.3, 0.8};
constexpr std::array<double, ClickGenerator::kNumbers> kMissing = {
    0.45, 0, 0.2, 0.2, 0.02, 0.2, 0.04, 0, 0.04, 0.45, 0.04, 0.7, 0.2};
constexpr double kLargest = 1 << 24;  // a float still has it

constexpr float kInteraction =
    0.375f;  // of vectors: pairs then count about half as much as weights

constexpr std::uint32_t kNumber = 1u << 31;  // of numbers, beside the features

}  // namespace

ClickGenerator::ClickGenerator(const Settings& settings, std::uint32_t day)
    : seed_(settings.seed),
      drift_(key_of(settings.seed, Purpose::moves, 0), settings.drift, day),
      delay_(settings.delay),
      model_key_(key_of(settings.seed, Purpose::model, 0)) {
  zipf_.reserve(settings.cardinalities.size());
  for (const std::uint64_t n : settings.cardinalities) zipf_.emplace_back(settings.exponent, n);
  for (std::size_t j = 0; j < kNumbers; ++j) numbers_[j] = part(j, kNumber);
  calibrate();
}

ClickGenerator::Part ClickGenerator::part(std::uint64_t id, std::size_t feature) const {
  const std::uint32_t day =
      feature == kNumber ? 0 : drift_.drawn(id, static_cast<std::uint32_t>(feature));
  const Words words = philox(model_key_, id, feature | std::uint64_t{day} << 32);
  const std::uint64_t low = words[0] | std::uint64_t{words[1]} << 32;
  const std::uint64_t high = words[2] | std::uint64_t{words[3]} << 32;
  return {signed_field(low, 0),
          {kInteraction * signed_field(low, 1), kInteraction * signed_field(low, 2),
           kInteraction * signed_field(high, 0), kInteraction * signed_field(high, 1)}};
}

std::uint64_t ClickGenerator::draw_id(std::uint64_t key, std::uint64_t row, std::size_t feature,
                                      double first) const {
  auto k = zipf_[feature](first);
  for (std::uint64_t attempt = 1; !k; ++attempt) {
    const Words words = philox(key, row, kIds + feature / 2 + attempt * kAttempt);
    const std::size_t half = feature % 2 * 2;
    k = zipf_[feature](uniform53(words[half], words[half + 1]));
  }
  return *k - 1;
}

double ClickGenerator::draw(std::uint64_t key, std::uint64_t row, float* x, std::uint64_t* ids,
                            std::int32_t* counts) const {
  std::array<Words, kIds> words;
  for (std::uint64_t i = 0; i < kIds; ++i) words[i] = philox(key, row, i);
  for (std::size_t j = 0; j < kNumbers; ++j) {
    const double u = (words[j / 4][j % 4] + 0.5) * kUnit32;
    if (u < kMissing[j]) {
      x[j] = 0;
      if (counts) counts[j] = -1;
      continue;
    }
    const double rest = (u - kMissing[j]) / (1 - kMissing[j]);  // uniform in (0, 1) again
    const double count_and_1 = std::min(std::exp(-kMean[j] * std::log(rest)), kLargest);
    const auto whole = static_cast<std::int32_t>(count_and_1);
    if (counts) counts[j] = whole - 1;
    x[j] = std::log(static_cast<float>(whole));
  }
  for (std::size_t f = 0; f < features(); f += 2) {
    const Words pair = philox(key, row, kIds + f / 2);
    ids[f] = draw_id(key, row, f, uniform53(pair[0], pair[1]));
    if (f + 1 < features()) ids[f + 1] = draw_id(key, row, f + 1, uniform53(pair[2], pair[3]));
  }
  return words[kNumbers / 4][kNumbers % 4] * kUnit32;
}

double ClickGenerator::score(const float* x, const std::uint64_t* ids) const {
  float linear = 0, squares = 0;
  std::array<float, kDim> sum{};
  const auto add = [&](const Part& part, float value) {
    linear += part.w * value;
    for (std::size_t d = 0; d < kDim; ++d) {
      const float v = part.v[d] * value;
      sum[d] += v;
      squares += v * v;
    }
  };
  for (std::size_t f = 0; f < features(); ++f) add(part(ids[f], f), 1);
  for (std::size_t j = 0; j < kNumbers; ++j) {
    add(numbers_[j], x[j] / static_cast<float>(kMean[j]) - 1);
  }
  float of_sums = 0;
  for (const float s : sum) of_sums += s * s;
  return double{linear} + 0.5 * (double{of_sums} - double{squares});
}

void ClickGenerator::calibrate() {
  constexpr std::size_t kRows = 8192;
  const std::uint64_t key = key_of(seed_, Purpose::calibration, drift_.day());
  std::array<float, kNumbers> x;
  std::vector<std::uint64_t> ids(features());
  std::vector<double> scores(kRows);
  for (std::size_t i = 0; i < kRows; ++i) {
    draw(key, i, x.data(), ids.data());
    scores[i] = score(x.data(), ids.data());
  }
  logit_ = HiddenLogit(scores, kSpread, kRate);
}

bool ClickGenerator::told(std::uint64_t key, std::uint64_t row) const {
  const Words words = philox(key, row, kTold);
  const double shown = uniform53(words[0], words[1]);
  const double waits = -delay_ * std::log(1 - uniform53(words[2], words[3]));
  return shown + waits <= 1;
}

void ClickGenerator::fill(Stream stream, std::uint64_t first, std::size_t count, const Rows& out,
                          std::size_t threads) const {
  constexpr std::size_t kChunk = 1024;
  if (count == 0) return;
  const Purpose purpose = stream == Stream::train ? Purpose::train : Purpose::test;
  const std::uint64_t key = key_of(seed_, purpose, drift_.day());
  const bool late = delay_ > 0 && stream == Stream::train;
  const double in_time = late ? 1 - delay_ * -std::expm1(-1 / delay_) : 1;  // share of the clicks
  // Relaxed: distinct numbers are all that is asked; the rows are seen after Team::run.
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (;;) {
      const std::size_t begin = next.fetch_add(kChunk, std::memory_order_relaxed);
      if (begin >= count) return;
      const std::size_t end = std::min(begin + kChunk, count);
      for (std::size_t i = begin; i < end; ++i) {
        float* const x = out.x + i * kNumbers;
        std::uint64_t* const ids = out.ids + i * features();
        const double u =
            draw(key, first + i, x, ids, out.counts ? out.counts + i * kNumbers : nullptr);
        const auto hidden = static_cast<float>(probability(x, ids));
        out.labels[i] = u < hidden && (!late || told(key, first + i));
        out.hidden[i] = late ? static_cast<float>(hidden * in_time) : hidden;
      }
    }
  };
  Team team;
  team.run(std::min(threads, (count + kChunk - 1) / kChunk) - 1, work);
}

}  // namespace leashed
