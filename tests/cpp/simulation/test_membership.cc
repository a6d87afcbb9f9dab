#include <doctest/doctest.h>

#include "leashed/simulation/membership.h"

using namespace leashed;
using Kind = MemberChange::Kind;

TEST_CASE("who joins first is not there at the beginning") {
  const Membership members(
      {.changes = {{Kind::join, 2, 1}, {Kind::leave, 1, 2}, {Kind::join, 1, 3}}}, 4, 0);
  CHECK(members.there(0));
  CHECK(members.there(1));
  CHECK_FALSE(members.there(2));
  CHECK_FALSE(members.unheard(2));
  CHECK_FALSE(members.by_chance());
}

TEST_CASE("of a crash nobody hears until it is missed; each coming and going is another life") {
  Membership members({}, 1, 0);
  const auto first = members.life(0);
  members.crash(0);
  CHECK_FALSE(members.there(0));
  CHECK(members.unheard(0));
  CHECK(members.life(0) != first);
  members.leave(0);
  CHECK_FALSE(members.unheard(0));
  const auto away = members.life(0);
  members.come(0);
  CHECK(members.there(0));
  CHECK(members.life(0) != away);
}

TEST_CASE("chance has the means that it was given, by the seed") {
  const MemberOptions options{.mean_between = 3, .mean_down = 0.5};
  Membership members(options, 50, 7), again(options, 50, 7), other(options, 50, 8);
  CHECK(members.by_chance());
  double between = 0, down = 0;
  bool differs = false;
  constexpr int kDraws = 2000;
  for (int i = 0; i < kDraws; ++i) {
    for (std::uint32_t w = 0; w < 50; ++w) {
      const std::int64_t crash = members.until_crash(w), back = members.until_return(w);
      CHECK(again.until_crash(w) == crash);
      CHECK(again.until_return(w) == back);
      differs = differs || other.until_crash(w) != crash;
      between += static_cast<double>(crash) * 1e-9;
      down += static_cast<double>(back) * 1e-9;
    }
  }
  CHECK(between / (50 * kDraws) == doctest::Approx(3).epsilon(0.02));
  CHECK(down / (50 * kDraws) == doctest::Approx(0.5).epsilon(0.02));
  CHECK(differs);
}
