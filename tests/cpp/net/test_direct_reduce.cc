// Sums over members that are all connected, in one thread in seeded orders over the least that
// sockets hold: members go ahead to the next sum, die, are left out of what is summed again. And on
// threads that wait.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "asked.h"
#include "leashed/net/direct_reduce.h"
#include "leashed/server/aggregator.h"
#include "sanitized.h"
#include "shortest.h"
#include "sockets.h"

using namespace leashed;

namespace {

using Random = std::mt19937_64;
using Vector = std::vector<float>;
using Reason = ConnectionError::Reason;
using Who = std::vector<std::size_t>;

constexpr double kLong = 120;  // seconds: under an emulator
constexpr DirectReduce::Kinds kKinds{0, 1};
constexpr std::array<std::uint64_t, 3> kLimits{DirectReduce::kFragment, DirectReduce::kFragment,
                                               DirectReduce::kFragment};

enum class Kind { least, sockets, shared };

std::pair<std::unique_ptr<Connection>, std::unique_ptr<Connection>> connected(Kind kind,
                                                                              bool checked) {
  const auto sockets = kind == Kind::sockets ? loopback() : pair_of_sockets();
  const int bytes = 1;
  for (const int socket : {sockets.first, sockets.second}) {
    if (kind != Kind::least) break;
    REQUIRE(setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) == 0);
    REQUIRE(setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) == 0);
  }
  auto one = std::make_unique<Connection>(sockets.first, kLimits, checked);
  auto other = std::make_unique<Connection>(sockets.second, kLimits, checked);
  if (kind == Kind::shared) {
    const std::shared_ptr<SharedRings> rings = SharedRings::create(draw_secret(), 4096);
    one->go_through(rings, true);
    other->go_through(rings, false);
  }
  return {std::move(one), std::move(other)};
}

std::vector<std::unique_ptr<DirectReduce>> mesh(std::size_t members, Kind kind,
                                                bool checked = false) {
  std::vector<std::unique_ptr<DirectReduce>> all;
  for (std::size_t i = 0; i < members; ++i) {
    all.push_back(std::make_unique<DirectReduce>(i, members, kKinds));
  }
  for (std::size_t i = 0; i < members; ++i) {
    for (std::size_t j = i + 1; j < members; ++j) {
      auto [one, other] = connected(kind, checked);
      all[i]->adopt(j, std::move(one));
      all[j]->adopt(i, std::move(other));
    }
  }
  return all;
}

// Of every size, so that the order of a sum tells in its last bits.
Vector drawn(std::size_t dimension, Random& random) {
  std::normal_distribution<float> normal;
  Vector vector(dimension);
  for (float& v : vector) v = std::ldexp(normal(random), static_cast<int>(random() % 24) - 12);
  return vector;
}

// A sum as all members are told of it.
struct Sum {
  Who members;
  std::size_t dimension;
  std::vector<double> weights;  // of those who give a vector
  double divisor = 1;
  std::vector<Vector> vectors;  // by member

  Sum(Who who, std::size_t all, std::size_t dimension, Random& random)
      : members(std::move(who)), dimension(dimension), vectors(all) {
    std::shuffle(members.begin(), members.end(), random);
    const bool some = random() % 3 == 0, alike = random() % 2 == 0;
    const std::size_t giving = some ? 1 + random() % members.size() : members.size();
    for (std::size_t i = 0; i < giving; ++i) {
      vectors[members[i]] = drawn(dimension, random);
      weights.push_back(alike ? 1 : 0.25 * static_cast<double>(1 + random() % 8));
    }
    divisor =
        alike ? static_cast<double>(giving) : std::accumulate(weights.begin(), weights.end(), 0.0);
  }
  void begin(DirectReduce& reduce, std::size_t member, std::uint64_t epoch) const {
    WeightedMean mean;
    mean.begin(weights, divisor);
    reduce.begin({.epoch = epoch,
                  .members = members,
                  .giving = weights.size(),
                  .dimension = dimension,
                  .add = [mean](float* sum, std::span<const float* const> all, std::size_t begin,
                                std::size_t end) { mean.add(sum, all, begin, end); }},
                 vectors[member]);
  }
  // What a server that keeps all of them makes of them.
  Vector by_server() const {
    Aggregator aggregator(dimension);
    std::vector<Aggregator::Part> parts;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      AlignedArray<float> values(dimension);
      std::ranges::copy(vectors[members[i]], values.data());
      aggregator.hold(static_cast<std::uint32_t>(members[i]), values);
      parts.push_back({static_cast<std::uint32_t>(members[i]), weights[i]});
    }
    const float* const sum = aggregator.begin(parts, divisor);
    aggregator.add(0, dimension);
    return {sum, sum + dimension};
  }
};

Who all_of(std::size_t members) {
  Who who(members);
  std::iota(who.begin(), who.end(), 0);
  return who;
}

Vector copied(std::span<const float> values) { return {values.begin(), values.end()}; }

std::size_t draw_dimension(std::size_t members, Random& random) {
  switch (random() % 8) {
    case 0:
      return random() % 2;
    case 1:
      return random() % (members + 1);
    case 2:
      return 16 * members - 8 + random() % 17;
    case 3:  // several fragments of a part
      if (members <= 3 && random() % 4 == 0) return 300'000 + random() % 1000;
      [[fallthrough]];
    default:
      return random() % 5000;
  }
}

// One of several members that go on by themselves, from sum to sum.
struct Player {
  std::unique_ptr<DirectReduce> reduce;
  std::size_t done = 0;  // sums
  bool begun = false;
  std::string failed = {};
};

struct Game {
  Game(std::size_t count, Kind kind, Random& random) : random(random) {
    for (auto& reduce : mesh(count, kind, random() % 2 == 0)) {
      players.push_back({.reduce = std::move(reduce)});
    }
  }
  void plan(const Who& who) {
    sums.emplace_back(who, players.size(), draw_dimension(who.size(), random), random);
    expected.push_back(sums.back().by_server());
  }
  void turn(std::size_t member) {
    Player& player = players[member];
    if (!player.reduce || !player.failed.empty() || player.done == sums.size()) return;
    try {
      if (!player.begun) sums[player.done].begin(*player.reduce, member, player.done + 1);
      player.begun = true;
      if (!player.reduce->step()) return;
      HOLDS(copied(player.reduce->sum()) == expected[player.done]);
      ++player.done;
      player.begun = false;
    } catch (const NoSum& error) {
      player.failed = error.what();
      HOLDS(error.members.size() == 1);
      HOLDS(!players[error.members[0]].reduce);
    }
  }
  bool over() const {
    return std::ranges::all_of(players, [&](const Player& player) {
      return !player.reduce || !player.failed.empty() || player.done == sums.size();
    });
  }
  void some_turns(std::size_t turns) {
    for (; turns > 0; --turns) turn(random() % players.size());
  }
  void run() {
    for (int passes = 0; passes < 1'000'000 && !over(); ++passes) turn(random() % players.size());
    HOLDS(over());
  }

  Random& random;
  std::vector<Player> players;
  std::vector<Sum> sums;
  std::vector<Vector> expected;
};

const std::uint64_t kSchedules = sanitized() ? 30 : 300;

// LEASHED_SCHEDULES: how many of each kind.
std::uint64_t schedules() { return asked_for("LEASHED_SCHEDULES", kSchedules); }

struct Settings {
  std::size_t members, deaths, sums;  // of these as many as there are before and after each death
};
const Lengths<Settings> kLengths = {{"deaths", &Settings::deaths, 0},
                                    {"sums", &Settings::sums, 1},
                                    {"members", &Settings::members, 2}};

// How many are left. Several die one after the other; those who are left begin again, wherever they
// are.
std::size_t played(const Settings& settings, Kind kind, std::uint64_t seed) {
  Random random(seed);
  const std::size_t count = settings.members;
  Game game(count, kind, random);
  Who living = all_of(count);
  for (std::size_t i = 0; i < settings.sums; ++i) game.plan(living);
  for (std::size_t i = 0; i < settings.deaths && living.size() > 1; ++i) {
    game.some_turns(random() % (20 * count));
    const std::size_t dead = random() % living.size();
    game.players[living[dead]].reduce.reset();
    living.erase(living.begin() + static_cast<std::ptrdiff_t>(dead));
    game.some_turns(random() % (20 * count));
    game.plan(living);
    for (Player& player : game.players) {
      player = {.reduce = std::move(player.reduce), .done = game.sums.size() - 1};
    }
  }
  game.run();
  for (const std::size_t member : living) {
    HOLDS(settings.deaths > 0 || game.players[member].failed.empty());
    HOLDS(game.players[member].done == game.sums.size());
  }
  return living.size();
}

void play(Kind kind, bool deaths) {
  std::size_t again = 0, by_one = 0;
  for (std::uint64_t seed = 0; seed < schedules(); ++seed) {
    CAPTURE(seed);
    Random random(seed);
    Settings settings{2 + random() % 7, 0, deaths ? 1U : 3U};
    while (deaths && settings.deaths + 1 < settings.members && random() % 4 != 0) ++settings.deaths;
    std::size_t living = 0;
    hold(settings, kLengths, [&](const Settings& of) { living = played(of, kind, seed); });
    again += settings.deaths;
    by_one += living == 1;
  }
  if (!deaths) return;
  CHECK(again > 0);
  CHECK(by_one > 0);
}

// To its end, or to why there is none.
struct Outcome {
  Vector sum = {};
  std::uint32_t checksum = 0;
  std::string why = {};
  Reason reason{};
  Who who = {};
};

Outcome summed(DirectReduce& reduce, const Sum& sum, std::size_t member, std::uint64_t epoch,
               const Deadline& deadline) {
  try {
    sum.begin(reduce, member, epoch);
    while (!reduce.step()) reduce.wait(deadline);
    return {.sum = copied(reduce.sum()), .checksum = reduce.checksum()};
  } catch (const NoSum& error) {
    return {.why = error.what(), .reason = error.reason, .who = error.members};
  }
}

}  // namespace

TEST_CASE("in whatever order members go on, all have what a server makes of their vectors") {
  SUBCASE("over sockets that hold little") { play(Kind::least, false); }
  SUBCASE("over TCP") { play(Kind::sockets, false); }
  SUBCASE("through shared memory") { play(Kind::shared, false); }
}

TEST_CASE("those who are left sum again, whatever is still on its way of what was given up") {
  SUBCASE("over sockets that hold little") { play(Kind::least, true); }
  SUBCASE("over TCP") { play(Kind::sockets, true); }
  SUBCASE("through shared memory") { play(Kind::shared, true); }
}

TEST_CASE("members that wait have the sum too, and each sends two parts to every other") {
  Kind kind = Kind::sockets;
  SUBCASE("over TCP") { kind = Kind::sockets; }
  SUBCASE("over sockets that hold little") { kind = Kind::least; }
  SUBCASE("through shared memory") { kind = Kind::shared; }
  constexpr std::size_t kMembers = 4, kDimension = 160'000, kRounds = 5;
  Random random(1);
  const auto all = mesh(kMembers, kind);
  std::vector<Sum> sums;
  std::size_t giving = 0;  // over all rounds
  for (std::size_t r = 0; r < kRounds; ++r) {
    sums.emplace_back(all_of(kMembers), kMembers, kDimension, random);
    giving += sums[r].weights.size();
  }
  std::vector<std::vector<Outcome>> outcomes(kMembers);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < kMembers; ++i) {
      threads.emplace_back([&, i] {
        for (std::size_t r = 0; r < kRounds; ++r) {
          outcomes[i].push_back(summed(*all[i], sums[r], i, r + 1, Deadline::in(kLong)));
        }
      });
    }
  }
  for (std::size_t r = 0; r < kRounds; ++r) {
    const Vector expected = sums[r].by_server();
    for (std::size_t i = 0; i < kMembers; ++i) {
      CHECK(outcomes[i][r].why == "");
      CHECK(outcomes[i][r].sum == expected);
      CHECK(outcomes[i][r].checksum == outcomes[0][r].checksum);
    }
  }
  std::uint64_t bytes = 0;
  for (const auto& reduce : all) bytes += reduce->traffic().own().out;
  const std::size_t part = kDimension / kMembers * sizeof(float) + kFrameHeader;
  CHECK(bytes == (giving + kRounds * kMembers) * (kMembers - 1) * part);
}

TEST_CASE("who is not there in time is named, and the others sum without him") {
  constexpr std::size_t kDimension = 1000;
  Random random(2);
  const auto all = mesh(3, Kind::least);
  const Sum sum(all_of(3), 3, kDimension, random);
  Outcome outcome[2];
  {
    std::vector<std::jthread> threads;
    for (const std::size_t i : {0, 1}) {
      threads.emplace_back([&, i] { outcome[i] = summed(*all[i], sum, i, 1, Deadline::in(0.2)); });
    }
  }
  for (const Outcome& one : outcome) {
    CHECK(one.reason == Reason::late);
    CHECK(std::ranges::count(one.who, 2) == 1);
    CHECK(one.why.find("member 2") != std::string::npos);
  }
  const Sum without({0, 1}, 3, kDimension, random);
  {
    std::vector<std::jthread> threads;
    for (const std::size_t i : {0, 1}) {
      threads.emplace_back(
          [&, i] { outcome[i] = summed(*all[i], without, i, 2, Deadline::in(kLong)); });
    }
  }
  for (const Outcome& one : outcome) CHECK(one.sum == without.by_server());
}

TEST_CASE("a sum that is called off blames nobody; a new connection is taken for the next") {
  Random random(3);
  auto all = mesh(2, Kind::least);
  const Sum sum(all_of(2), 2, 100, random);
  const std::atomic<bool> cancelled{true};
  const Outcome off = summed(*all[0], sum, 0, 1, {.cancelled = &cancelled});
  CHECK(off.reason == Reason::cancelled);
  CHECK(off.who.empty());
  all[1].reset();
  const Outcome gone = summed(*all[0], sum, 0, 2, Deadline::in(kLong));
  CHECK(gone.who == Who{1});
  CHECK(summed(*all[0], sum, 0, 3, Deadline::in(kLong)).why == "member 1: there is no connection");
  all[1] = std::make_unique<DirectReduce>(1, 2, kKinds);
  auto [one, other] = connected(Kind::least, true);
  all[0]->adopt(1, std::move(one));
  all[1]->adopt(0, std::move(other));
  const std::jthread second([&] { summed(*all[1], sum, 1, 4, Deadline::in(kLong)); });
  CHECK(summed(*all[0], sum, 0, 4, Deadline::in(kLong)).sum == sum.by_server());
}

TEST_CASE("frames that are none of the sum are their sender's fault") {
  constexpr std::uint64_t kEpoch = std::uint64_t{1} << 20;
  const Vector values(50, 1);
  const auto refused = [&](const FrameHeader& header, std::size_t count) {
    Random random(4);
    DirectReduce reduce(0, 2, kKinds);
    auto [one, other] = connected(Kind::sockets, false);
    reduce.adopt(1, std::move(one));
    Sum sum(all_of(2), 2, 100, random);
    sum.members = {0, 1};
    sum.weights = {1, 1};
    sum.vectors[0] = drawn(100, random);
    const auto payload = std::as_bytes(std::span(values)).first(count);
    other->send(header, {&payload, 1}, Deadline::in(kLong));
    const Outcome outcome = summed(reduce, sum, 0, 1, Deadline::in(kLong));
    CHECK(outcome.who == Who{1});
    return outcome.reason == Reason::refused;
  };
  CHECK(refused({.kind = 0, .correlation = kEpoch}, 8));        // of another length
  CHECK(refused({.kind = 0, .correlation = kEpoch | 1}, 200));  // of no fragment
  CHECK(refused({.kind = 1, .correlation = kEpoch | 7}, 200));  // likewise
  CHECK(refused({.kind = 2, .correlation = kEpoch}, 200));      // of another kind
  CHECK(refused({.kind = 1, .correlation = kEpoch}, 144));      // before its vector
}

TEST_CASE("a round that is none is refused by name before anything is sent") {
  DirectReduce reduce(0, 2, kKinds);
  const Who one{0}, twice{0, 1, 1}, strange{0, 2}, others{1};
  const Vector vector(3), longer(4);
  const auto begin = [&](std::uint64_t epoch, const Who& members, std::size_t giving,
                         std::span<const float> values) {
    reduce.begin({.epoch = epoch, .members = members, .giving = giving, .dimension = 3, .add = {}},
                 values);
  };
  CHECK_THROWS_WITH(begin(0, one, 1, vector), "epoch is 0 behind 0");
  CHECK_THROWS_WITH(begin(DirectReduce::kLastEpoch + 1, one, 1, vector),
                    doctest::Contains("epoch"));
  CHECK_THROWS_WITH(begin(1, one, 0, {}), doctest::Contains("giving is 0 of 1"));
  CHECK_THROWS_WITH(begin(1, one, 2, vector), doctest::Contains("giving is 2 of 1"));
  CHECK_THROWS_WITH(begin(1, others, 1, vector), "members: member 0 is none of them");
  CHECK_THROWS_WITH(begin(1, twice, 1, vector), "members: member 1 is none, or there twice");
  CHECK_THROWS_WITH(begin(1, strange, 1, vector), "members: member 2 is none, or there twice");
  CHECK_THROWS_WITH(begin(1, one, 1, longer), "vector has 4 values in place of 3");
  CHECK_THROWS_WITH(DirectReduce(2, 2, kKinds), "self is 2 of 2 members");
}
