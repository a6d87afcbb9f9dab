// A team does all of the work, whatever threads the system gives it.
#include <doctest/doctest.h>

#include <atomic>
#include <system_error>
#include <vector>

#include "leashed/base/fault.h"
#include "leashed/base/team.h"

using namespace leashed;

namespace {

constexpr std::size_t kParts = 1000;

// Every part is done once, however many threads take part, and what they wrote is seen.
void check_all_done(Team& team, std::size_t helpers) {
  std::vector<int> done(kParts);
  std::atomic<std::size_t> next{0};
  team.run(helpers, [&] {
    for (std::size_t k; (k = next.fetch_add(1, std::memory_order_relaxed)) < kParts;) ++done[k];
  });
  CHECK(done == std::vector<int>(kParts, 1));
}

int threads_left;

}  // namespace

TEST_CASE("a team does every part once, again and again") {
  Team team;
  for (int i = 0; i < 200; ++i) {
    for (const std::size_t helpers : {0, 1, 3, 2, 7}) check_all_done(team, helpers);
  }
}

TEST_CASE("where the system starts fewer threads, those that there are do it all") {
  for (const int given : {0, 1, 3}) {
    CAPTURE(given);
    threads_left = given;
    fault_hook = [](const char*) {
      if (threads_left-- <= 0) {
        throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
      }
    };
    Team team;
    for (int i = 0; i < 5; ++i) check_all_done(team, 6);
    fault_hook = nullptr;
  }
}

TEST_CASE(
    "waiting for a team ends after the time given, and helpers that have not begun never do") {
  Team team;
  std::atomic<bool> go{false};
  std::atomic<int> begun{0};
  team.begin(1, [&] {
    begun.fetch_add(1, std::memory_order_relaxed);
    go.wait(false, std::memory_order_acquire);
  });
  while (begun.load(std::memory_order_relaxed) == 0) std::this_thread::yield();
  CHECK_FALSE(team.wait(0.001));
  go.store(true, std::memory_order_release);  // with the load of the helper's wait
  go.notify_all();
  team.finish();
  CHECK(team.wait(0));
  CHECK(begun.load(std::memory_order_relaxed) == 1);
}
