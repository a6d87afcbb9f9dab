#include "leashed/data/histories.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "leashed/base/philox.h"
#include "leashed/base/team.h"
#include "leashed/data/uniform.h"

namespace leashed {
namespace {

// What a key is for; numbers that ClickGenerator has not.
enum HistoryPurpose : std::uint64_t { kTrain = 16, kTest, kCalibration, kModel, kInterest, kMoves };

constexpr double kStays = 0.85, kKeen = 0.8, kFades = 0.9;

// In a row's counters: who and how long, what is shown, and from here the entries; so many further
// for each attempt.
constexpr std::uint64_t kWho = 0, kShown = 1, kEntries = 2;
constexpr std::uint64_t kNextAttempt = std::uint64_t{1} << 32;

std::uint64_t below(std::uint64_t n, double u) {
  return std::min(static_cast<std::uint64_t>(u * static_cast<double>(n)), n - 1);
}

}  // namespace

HistoryGenerator::HistoryGenerator(const Settings& settings, std::uint32_t day)
    : seed_(settings.seed),
      users_(settings.users),
      categories_(settings.categories),
      longest_(settings.longest),
      within_(settings.exponent, settings.items / settings.categories),
      drift_(key_of(settings.seed, kMoves), settings.drift, day),
      model_key_(key_of(settings.seed, kModel)),
      interests_key_(key_of(settings.seed, kInterest)) {
  constexpr std::size_t kRows = 8192;
  const std::uint64_t key = key_of(seed_, kCalibration, day);
  std::vector<std::uint64_t> before(longest_);
  std::vector<double> scores(kRows);
  for (std::size_t i = 0; i < kRows; ++i) {
    const Row row = draw(key, i, before.data());
    scores[i] = score(row.item, before.data(), row.length);
  }
  logit_ = HiddenLogit(scores, kSpread, kRate);
}

std::uint64_t HistoryGenerator::item_of(std::uint64_t category, std::uint64_t key,
                                        std::uint64_t row, std::uint64_t counter,
                                        double first) const {
  auto k = within_(first);
  for (std::uint64_t attempt = 1; !k; ++attempt) {
    const auto words = philox(key, row, counter + attempt * kNextAttempt);
    k = within_(uniform53(words[2], words[3]));
  }
  return (*k - 1) * categories_ + category;
}

HistoryGenerator::Row HistoryGenerator::draw(std::uint64_t key, std::uint64_t row,
                                             std::uint64_t* before) const {
  const auto who = philox(key, row, kWho);
  Row drawn{};
  drawn.user = below(users_, uniform53(who[0], who[1]));
  drawn.length = below(longest_ + 1, who[2] * kUnit32);
  drawn.label = who[3] * kUnit32;
  const auto taste = philox(interests_key_, drawn.user, 0);
  std::array<std::uint64_t, kInterests> interests;
  for (std::size_t i = 0; i < kInterests; ++i) {
    interests[i] = below(categories_, taste[i] * kUnit32);
  }
  std::uint64_t interest = interests[0];
  const auto any = [&](double u) { return below(categories_, u); };
  for (std::size_t j = 0; j < drawn.length; ++j) {
    const auto words = philox(key, row, kEntries + j);
    const double moves = words[0] * kUnit32;
    if (j == 0 || moves >= kStays) {
      const double u = j == 0 ? moves : (moves - kStays) / (1 - kStays);
      interest = interests[below(kInterests, u)];
    }
    const double keen = words[1] * kUnit32;
    const std::uint64_t category = keen < kKeen ? interest : any((keen - kKeen) / (1 - kKeen));
    before[j] = item_of(category, key, row, kEntries + j, uniform53(words[2], words[3]));
  }
  const auto shown = philox(key, row, kShown);
  const double half = shown[0] * kUnit32;
  drawn.item = item_of(half < 0.5 ? interest : any(2 * half - 1), key, row, kShown,
                       uniform53(shown[2], shown[3]));
  return drawn;
}

HistoryGenerator::Part HistoryGenerator::part(std::uint64_t item) const {
  const auto words = philox(model_key_, item, drift_.drawn(item));
  const std::uint64_t low = words[0] | std::uint64_t{words[1]} << 32;
  const std::uint64_t high = words[2] | std::uint64_t{words[3]} << 32;
  return {
      signed_field(low, 0),
      {signed_field(low, 1), signed_field(low, 2), signed_field(high, 0), signed_field(high, 1)}};
}

double HistoryGenerator::score(std::uint64_t item, const std::uint64_t* before,
                               std::size_t length) const {
  const Part shown = part(item);
  double sum = 0;
  for (std::size_t j = 0; j < length; ++j) {  // what is older fades
    const Part other = part(before[j]);
    float alike = before[j] % categories_ == item % categories_ ? 1 : 0;
    for (std::size_t d = 0; d < kDim; ++d) alike += shown.v[d] * other.v[d];
    sum = kFades * sum + std::max(alike, 0.0f);
  }
  return shown.w + std::sqrt(sum);
}

void HistoryGenerator::fill(Stream stream, std::uint64_t first, std::size_t count, const Rows& out,
                            std::size_t threads) const {
  constexpr std::size_t kChunk = 1024;
  if (count == 0) return;
  const std::uint64_t key = key_of(seed_, stream == Stream::train ? kTrain : kTest, drift_.day());
  // Relaxed: distinct numbers are all that is asked; the rows are seen after Team::run.
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (;;) {
      const std::size_t begin = next.fetch_add(kChunk, std::memory_order_relaxed);
      if (begin >= count) return;
      const std::size_t end = std::min(begin + kChunk, count);
      for (std::size_t i = begin; i < end; ++i) {
        std::uint64_t* const before = out.before + i * longest_;
        const Row row = draw(key, first + i, before);
        const auto hidden =
            static_cast<float>(logit_.probability(score(row.item, before, row.length)));
        out.users[i] = row.user;
        out.items[i] = row.item;
        out.lengths[i] = static_cast<std::int64_t>(row.length);
        out.labels[i] = row.label < hidden;
        out.hidden[i] = hidden;
      }
    }
  };
  Team team;
  team.run(std::min(threads, (count + kChunk - 1) / kChunk) - 1, work);
}

}  // namespace leashed
