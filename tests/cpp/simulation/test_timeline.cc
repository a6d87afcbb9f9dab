#include <doctest/doctest.h>

#include "leashed/simulation/timeline.h"

using namespace leashed;
namespace {
enum class Kind { step, computed, ready, evaluate };
}

TEST_CASE("moments come by time, then by kind, then by worker, then as they were entered") {
  Timeline<Kind> timeline;
  timeline.enter({5, Kind::ready, 0});
  timeline.enter({5, Kind::step, 9});
  timeline.enter({5, Kind::step, 2});
  timeline.enter({3, Kind::evaluate, 0});
  timeline.enter({5, Kind::computed, 1});
  const auto next = [&] {
    const Moment<Kind> moment = timeline.take();
    return std::tuple(moment.ns, moment.kind, moment.worker);
  };
  CHECK(timeline.next().ns == 3);
  CHECK(next() == std::tuple(3, Kind::evaluate, 0u));
  CHECK(next() == std::tuple(5, Kind::step, 2u));
  CHECK(next() == std::tuple(5, Kind::step, 9u));
  CHECK(next() == std::tuple(5, Kind::computed, 1u));
  CHECK(next() == std::tuple(5, Kind::ready, 0u));
  CHECK(timeline.empty());
}
