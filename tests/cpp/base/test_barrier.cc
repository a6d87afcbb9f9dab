#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "leashed/base/barrier.h"

using namespace leashed;

TEST_CASE("what anyone did before a barrier is seen by all behind it, round after round") {
  for (const std::size_t threads : {1u, 2u, 3u, 8u}) {
    CAPTURE(threads);
    Barrier barrier(threads);
    std::vector<int> values(threads);
    int last = 0, total = 0;  // of those who were last to arrive
    std::atomic<int> wrong{0};
    std::vector<std::jthread> team;
    for (std::size_t rank = 0; rank < threads; ++rank) {
      team.emplace_back([&, rank] {
        for (int round = 1; round <= 500; ++round) {
          values[rank] = round;
          // Sometimes one is so late that the others fall asleep.
          if (round % 100 == 0 && rank == 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          const bool was_last = barrier.arrive_and_wait([&] { ++last; });
          for (const int value : values) wrong += value != round;
          wrong += last != round;
          barrier.arrive_and_wait();
          if (was_last) ++total;
        }
      });
    }
    team.clear();
    CHECK(wrong == 0);
    CHECK(total == 500);
  }
}

TEST_CASE("threads that drop out one after the other are not waited for") {
  constexpr std::size_t kThreads = 6;
  Barrier barrier(kThreads);
  std::vector<int> rounds(kThreads);
  std::vector<std::jthread> team;
  for (std::size_t rank = 0; rank < kThreads; ++rank) {
    team.emplace_back([&, rank] {
      for (std::size_t round = 0; round < 10 * rank; ++round) {
        barrier.arrive_and_wait();
        ++rounds[rank];
      }
      barrier.arrive_and_drop();
    });
  }
  team.clear();
  for (std::size_t rank = 0; rank < kThreads; ++rank) {
    CHECK(rounds[rank] == static_cast<int>(10 * rank));
  }
}
