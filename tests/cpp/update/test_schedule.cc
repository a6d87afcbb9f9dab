#include <doctest/doctest.h>

#include <vector>

#include "leashed/update/schedule.h"

using namespace leashed;

TEST_CASE("no learning rate exceeds the largest, which is nearly reached") {
  const Choice step{"step", {{"lr", 0.4}, {"every", 10}, {"factor", 0.5}}};
  const Choice cosine{"cosine", {{"lr", 0.1}, {"total", 100}, {"final", 0.3}}};
  const std::vector<Choice> schedules = {
      step,
      cosine,
      {"warmup", {{"steps", 20}, {"start", 0.1}}, {}, {{"schedule", cosine}}},
      {"scaled", {}, {}, {{"schedule", step}}},
  };
  for (const Choice& choice : schedules) {
    CAPTURE(choice.name);
    const auto schedule = make_schedule({"rule", {}, {}, {{"lr", choice}}}, "lr", 3);
    double largest = 0;
    for (std::uint64_t t = 0; t < 200; ++t) {
      largest = std::max(largest, schedule->at(t));
      CHECK(schedule->at(t) <= schedule->largest());
    }
    CHECK(largest == doctest::Approx(schedule->largest()));
  }
  CHECK(make_schedule({"sgd", {{"lr", 0.2}}}, "lr", 3)->largest() == 0.2);
}
