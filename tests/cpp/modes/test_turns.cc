// Turns to compute: so many at once, each in its time, and nobody waits once the run is
// stopped.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "leashed/modes/turns.h"

using namespace leashed;

TEST_CASE("as many have a turn at once as may, and each has one in the end") {
  for (const std::size_t at_once : {1, 3}) {
    CAPTURE(at_once);
    constexpr int kTimes = 300;
    const StopFlag stop;
    Turns turns(at_once, stop);
    std::atomic<std::size_t> within{0}, most{0};
    std::atomic<int> had{0};
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < 6; ++i) {
        threads.emplace_back([&] {
          for (int n = 0; n < kTimes; ++n) {
            const Turns::Turn turn = turns.take();
            const std::size_t now = ++within;
            for (std::size_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
            }
            if (n % 8 == 0) std::this_thread::yield();
            --within;
            had += turn != nullptr;
          }
        });
      }
    }
    CHECK(most <= at_once);
    CHECK(had == 6 * kTimes);
  }
}

TEST_CASE("who gives a turn back and asks again is behind who waits") {
  const StopFlag stop;
  Turns turns(1, stop);
  Turns::Turn mine = turns.take();
  std::atomic<bool> had{false};
  const std::jthread other([&] { had = turns.take() != nullptr; });
  while (!had) {
    mine.reset();
    mine = turns.take();
  }
  CHECK(mine);
}

TEST_CASE("whoever waits when the run is stopped has none, and no turn is lost") {
  StopFlag stop;
  Turns turns(1, stop);
  stop.on_stop([&] { turns.stop(); });
  Turns::Turn first = turns.take();
  std::atomic<int> without{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { without += turns.take() == nullptr; });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  stop.stop(StopReason::interrupted);
  threads.clear();
  CHECK(without == 4);
  CHECK(turns.take() == nullptr);
  first.reset();
}
