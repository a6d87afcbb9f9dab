#include <doctest/doctest.h>

#include <stdexcept>

#include "shortest.h"

using namespace leashed;

namespace {

struct Settings {
  std::size_t steps, faults, size;
};
const Lengths<Settings> kLengths = {
    {"steps", &Settings::steps, 0}, {"faults", &Settings::faults, 0}, {"size", &Settings::size, 1}};

}  // namespace

TEST_CASE("of a schedule that fails the shortest that does is found") {
  std::size_t played = 0;
  const auto play = [&played](const Settings& settings) {
    ++played;
    HOLDS(settings.steps < 37 || settings.faults < 3);
    if (settings.steps == 1000) throw std::runtime_error("at first");
  };
  const Settings given{1000, 90, 500};
  CHECK(why_fails(given, play).find("settings.faults < 3") != std::string::npos);
  const auto [least, why] = shortest(given, "at first", kLengths, play);
  CHECK(least.steps == 37);
  CHECK(least.faults == 3);
  CHECK(least.size == 1);
  CHECK(why.find("settings.steps < 37") != std::string::npos);
  CHECK(played < 100);
}

TEST_CASE("a schedule that does not fail is played once") {
  std::size_t played = 0;
  hold(Settings{5, 5, 5}, kLengths, [&played](const Settings&) { ++played; });
  CHECK(played == 1);
}
