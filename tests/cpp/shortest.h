// Schedules that are drawn from settings and a seed: of one that fails, the shortest like it.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace leashed {

// What does not hold in a schedule. No std::exception: what is tried may go on after one.
struct DoesNotHold {
  std::string what;
};

// As REQUIRE, in a schedule that is to be made shorter where it fails.
#define HOLDS(...)                                                                      \
  do {                                                                                  \
    if (!(__VA_ARGS__)) {                                                               \
      throw leashed::DoesNotHold{std::string(__FILE__ ":") + std::to_string(__LINE__) + \
                                 ": " #__VA_ARGS__};                                    \
    }                                                                                   \
  } while (false)

// A number of the settings, the fewer the shorter, and how few it may be.
template <class Settings>
struct Length {
  const char* name;
  std::size_t Settings::*number;
  std::size_t least;
};
template <class Settings>
using Lengths = std::vector<Length<Settings>>;

// Why it does; empty: it does not.
template <class Settings, class Play>
std::string why_fails(const Settings& settings, const Play& play) {
  try {
    play(settings);
  } catch (const DoesNotHold& wrong) {
    return wrong.what;
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

// Settings with which it fails, and with one less of any of these lengths does not: each is halved
// between what fails and what does not.
template <class Settings, class Play>
std::pair<Settings, std::string> shortest(Settings settings, std::string why,
                                          const Lengths<Settings>& lengths, const Play& play) {
  for (bool shorter = true; shorter;) {
    shorter = false;
    for (const auto& [name, number, least] : lengths) {
      const auto fails = [&, number = number](std::size_t fewer) {
        Settings tried = settings;
        tried.*number = fewer;
        std::string still = why_fails(tried, play);
        if (still.empty()) return false;
        settings = tried;
        why = std::move(still);
        return shorter = true;
      };
      if (settings.*number <= least || fails(least)) continue;
      for (std::size_t holds = least; settings.*number - holds > 1;) {
        const std::size_t half = holds + (settings.*number - holds) / 2;
        if (!fails(half)) holds = half;
      }
    }
  }
  return {settings, why};
}

// That a schedule does not throw: else the shortest that does is told.
template <class Settings, class Play>
void hold(const Settings& settings, const Lengths<Settings>& lengths, const Play& play) {
  const std::string why = why_fails(settings, play);
  if (why.empty()) return;
  const auto [least, still] = shortest(settings, why, lengths, play);
  std::string told = why + "\nthe shortest: " + still + "\n ";
  for (const auto& [name, number, _] : lengths) {
    told += std::string(" ") + name + " " + std::to_string(least.*number) + " (of " +
            std::to_string(settings.*number) + ")";
  }
  FAIL(told);
}

}  // namespace leashed
