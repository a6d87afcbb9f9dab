// What a policy server answers, without a socket or a thread: under schedules of workers that come
// and go, are cut off, hang, and say what does not belong there, each mode does what it does when
// it is told directly.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "cluster/policy_world.h"
#include "modes/all_modes.h"

using namespace leashed;

namespace {

// LEASHED_SCHEDULES: how many of each mode; by hand.
std::size_t schedules_of_each(std::size_t few) {
  const char* const asked = std::getenv("LEASHED_SCHEDULES");
  return asked ? std::stoul(asked) : few;
}

bool has_server(const Choice& mode) {
  for (const char* name : {"all_reduce", "swarm", "go_sgd", "ad_psgd", "d_psgd", "prague"}) {
    if (mode.name == name) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("whatever becomes of its workers, each mode over frames does what it is told") {
  PolicyWorld::Happened all;
  for (const Choice& mode : all_modes()) {
    if (!has_server(mode)) continue;
    for (std::size_t seed = 0; seed < schedules_of_each(30); ++seed) {
      CAPTURE(mode.name);
      CAPTURE(seed);
      PolicyWorld::Setting setting{.mode = mode};
      setting.workers = 1 + seed % 4;
      if (seed % 5 == 4) setting.staleness = {"power", {{"k", 0.5}}};
      PolicyWorld world(setting, static_cast<std::uint32_t>(seed));
      world.run();
      const PolicyWorld::Happened& one = world.happened();
      for (const auto sum : {&PolicyWorld::Happened::cuts, &PolicyWorld::Happened::restarts,
                             &PolicyWorld::Happened::replaced, &PolicyWorld::Happened::strange,
                             &PolicyWorld::Happened::not_finite, &PolicyWorld::Happened::left,
                             &PolicyWorld::Happened::late, &PolicyWorld::Happened::commands}) {
        all.*sum += one.*sum;
      }
    }
  }
  CHECK(all.cuts > 0);
  CHECK(all.restarts > 0);
  CHECK(all.replaced > 0);
  CHECK(all.strange > 0);
  CHECK(all.not_finite > 0);
  CHECK(all.left > 0);
  CHECK(all.late > 0);
  CHECK(all.commands > 0);
}
