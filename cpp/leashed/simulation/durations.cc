#include "leashed/simulation/durations.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numbers>

#include "leashed/base/philox.h"

namespace leashed {
namespace {

constexpr double kMost = 1e9;  // seconds
// The index of what is drawn once; what machines bear is drawn at those before it.
constexpr std::uint64_t kOwn = ~std::uint64_t{0};
constexpr std::uint64_t kFetching = std::uint64_t{1} << 62;  // the first index of what is fetched
constexpr double kSlowest = 0.05;                            // of the mean rate

double uniform(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = (std::uint64_t{high} << 20) | (low >> 12);
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

void draw(std::uint64_t seed, std::uint32_t worker, std::uint64_t index, double (&two)[2]) {
  const auto words = philox(seed, worker, index);
  two[0] = uniform(words[0], words[1]);
  two[1] = uniform(words[2], words[3]);
}

double normal(const double (&uniform)[2]) {
  return std::sqrt(-2 * std::log(uniform[0])) * std::cos(2 * std::numbers::pi * uniform[1]);
}

struct Constant final : Durations {
  explicit Constant(const Choice& choice) : value(choice["seconds"]) {}
  double seconds(const Drawn&) const override { return value; }
  const double value;
};

struct Normal final : Durations {
  explicit Normal(const Choice& choice) : mean(choice["mean"]), deviation(choice["deviation"]) {}
  double seconds(const Drawn& drawn) const override { return mean + deviation * normal(drawn.now); }
  const double mean, deviation;
};

struct Exponential final : Durations {
  explicit Exponential(const Choice& choice) : mean(choice["mean"]) {}
  double seconds(const Drawn& drawn) const override { return -mean * std::log(drawn.now[0]); }
  const double mean;
};

// Each worker pushes as a Poisson process whose rate was drawn once, from a normal distribution
// without its negative values (extreme-scale-asgd, "Staleness").
struct Rates final : Durations {
  explicit Rates(const Choice& choice) : mean(choice["mean"]), spread(choice["spread"]) {}
  double seconds(const Drawn& drawn) const override {
    const double rate = std::max(kSlowest, 1 + spread * normal(drawn.own));
    return -mean / rate * std::log(drawn.now[0]);
  }
  const double mean, spread;
};

// Lomax's distribution; the smaller the shape, which is above 1, the heavier its tail.
struct HeavyTail final : Durations {
  explicit HeavyTail(const Choice& choice) : mean(choice["mean"]), shape(choice["shape"]) {}
  double seconds(const Drawn& drawn) const override {
    return mean * (shape - 1) * std::expm1(-std::log(drawn.now[0]) / shape);
  }
  const double mean, shape;
};

struct Trace final : Durations {
  explicit Trace(const Choice& choice) : all(choice.table("seconds")) {
    if (all.empty()) throw Error("a trace needs at least one duration");
  }
  // Workers begin apart, or all would be slow at once.
  double seconds(const Drawn& drawn) const override {
    const auto first = static_cast<std::uint64_t>(drawn.own[0] * static_cast<double>(all.size()));
    return all[(first + drawn.index) % all.size()];
  }
  const std::vector<double> all;
};

template <class D>
std::unique_ptr<Durations> make(const Choice& choice) {
  return std::make_unique<D>(choice);
}

using DurationsMaker = std::function<std::unique_ptr<Durations>(const Choice&)>;
const std::map<std::string, DurationsMaker>& registry() {
  static const std::map<std::string, DurationsMaker> makers = {
      {"constant", make<Constant>},       {"normal", make<Normal>},
      {"exponential", make<Exponential>}, {"rates", make<Rates>},
      {"heavy_tail", make<HeavyTail>},    {"trace", make<Trace>},
  };
  return makers;
}

}  // namespace

std::int64_t Durations::operator()(std::uint32_t worker, std::uint64_t index,
                                   std::int64_t now) const {
  return time(worker, index, 1, now);
}

std::int64_t Durations::fetching(std::uint32_t worker, std::uint64_t index,
                                 std::int64_t now) const {
  return fetch_ > 0 ? time(worker, kFetching + index, fetch_, now) : 0;
}

std::int64_t Durations::time(std::uint32_t worker, std::uint64_t index, double scale,
                             std::int64_t now) const {
  Drawn drawn{{}, {}, index};
  draw(seed_, worker, kOwn, drawn.own);
  draw(seed_, worker, index, drawn.now);
  double duration = scale * seconds(drawn);
  if (worker < slower_.size()) duration *= slower_[worker];
  if (!load_.none()) {
    double machine[2] = {};
    if (!load_.even()) draw(seed_, worker, kOwn - 1 - load_.spell(now, drawn.own[1]), machine);
    duration *= load_.factor(now, load_.even() ? 1 : -std::log(machine[0]));
  }
  if (!(duration > 0)) return 0;
  // What takes time takes some, or time would stand still.
  return std::max<std::int64_t>(1, std::llround(std::min(duration, kMost) * 1e9));
}

std::unique_ptr<Durations> make_durations(const Choice& choice, std::uint64_t seed) {
  std::unique_ptr<Durations> durations = find_choice(registry(), "durations", choice.name)(choice);
  durations->seed_ = seed;
  durations->fetch_ = choice.value("fetch", 0);
  const auto slower = choice.tables.find("slower");
  if (slower != choice.tables.end()) durations->slower_ = slower->second;
  if (choice.tables.contains("load")) durations->load_ = Load(choice);
  return durations;
}

}  // namespace leashed
