// Lookups and pushes of rows in one thread, in seeded orders (row_world.h).
#include <doctest/doctest.h>

#include <string>

#include "asked.h"
#include "cluster/row_world.h"
#include "shortest.h"

using namespace leashed;

namespace {

// LEASHED_SCHEDULES: how many; a million by hand.
std::size_t schedules(std::size_t few) { return asked_for("LEASHED_SCHEDULES", few); }

using Settings = RowWorld::Settings;
const Lengths<Settings> kLengths = {
    {"faults", &Settings::faults, 0},         {"batches", &Settings::batches, 1},
    {"clients", &Settings::clients, 1},       {"servers", &Settings::servers, 1},
    {"look_ahead", &Settings::look_ahead, 0}, {"size", &Settings::size, 1}};

RowWorld::Happened played(const Settings& settings, std::uint64_t seed) {
  RowWorld::Happened happened;
  hold(settings, kLengths, [&](const Settings& of) {
    RowWorld world(of, seed);
    world.run();
    world.check();
    happened = world.happened;
  });
  return happened;
}

}  // namespace

TEST_CASE(
    "whatever is cut, started again or late, each push of rows is there once or told as lost") {
  RowWorld::Happened all;
  for (std::uint64_t seed = 0; seed < schedules(150); ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Settings settings;
    settings.servers = 1 + random() % 3;
    settings.clients = 1 + random() % 3;
    settings.look_ahead = random() % (seed % 2 ? 2 : kMostAhead + 1);
    settings.batches = 3 + random() % 12;
    settings.size = settings.servers + random() % 12;
    settings.piece = random() % 2 ? 7 : 200;
    settings.faults = random() % 12;
    settings.expire = random() % 2;
    settings.bad = random() % 2;
    settings.pooled = random() % 2;
    const RowWorld::Happened one = played(settings, seed);
    all.cuts += one.cuts;
    all.between += one.between;
    all.restarts += one.restarts;
    all.deaths += one.deaths;
    all.pushes += one.pushes;
    all.bad += one.bad;
    all.lost += one.lost;
    all.expired += one.expired;
    all.again += one.again;
    all.nested += one.nested;
    all.refused += one.refused;
  }
  CAPTURE(all.refused);
  for (const std::size_t n : {all.cuts, all.between, all.restarts, all.deaths, all.pushes, all.bad,
                              all.lost, all.expired, all.again, all.nested}) {
    CHECK(n > 0);
  }
}

TEST_CASE("pushes whose connection is cut between their update and the answer are applied once") {
  std::size_t cuts = 0;
  const std::size_t wanted = std::max<std::size_t>(100, schedules(100));
  for (std::uint64_t seed = 0; cuts < wanted; ++seed) {
    CAPTURE(seed);
    const RowWorld::Happened one = played({.batches = 30,
                                           .faults = 0,
                                           .between = 0.5,
                                           .restarts = false,
                                           .deaths = false,
                                           .bad = false,
                                           .expire = false,
                                           .pooled = seed % 2 == 1},
                                          seed);
    CHECK(one.again > 0);
    CHECK(one.lost == 0);
    cuts += one.between;
  }
}

TEST_CASE("a server that was started again knows which pushes were left out, though nobody heard") {
  RowWorld::Happened all;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const RowWorld::Happened one = played({.batches = 40,
                                           .faults = 60,
                                           .fault = 0.05,
                                           .between = 0.6,
                                           .deaths = false,
                                           .pooled = seed % 2 == 1},
                                          seed);
    all.bad += one.bad;
    all.restarts += one.restarts;
    all.expired += one.expired;
    all.lost += one.lost;
  }
  for (const std::size_t n : {all.bad, all.restarts, all.expired, all.lost}) CHECK(n > 0);
}
