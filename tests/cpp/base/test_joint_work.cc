#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "leashed/base/joint_work.h"

using namespace leashed;

TEST_CASE("alone it does every part once, and nothing is left for who comes late") {
  JointWork work;
  work.help();  // of nothing yet
  for (const std::uint32_t parts : {0u, 1u, 7u}) {
    std::vector<int> done(parts);
    bool asked = false;
    work.run(
        parts, [&](std::uint32_t i) { ++done[i]; }, [&] { asked = true; });
    CHECK(asked);
    CHECK(done == std::vector<int>(parts, 1));
    work.help();
    CHECK(done == std::vector<int>(parts, 1));
  }
}

TEST_CASE("every part is done once whoever helps and when, and is seen by who waits for it") {
  for (const std::size_t helpers : {1u, 3u}) {
    CAPTURE(helpers);
    JointWork work;
    std::atomic<bool> over{false};
    std::atomic<std::uint64_t> helped{0};
    std::vector<std::jthread> team;
    for (std::size_t h = 0; h < helpers; ++h) {
      team.emplace_back([&] {
        while (!over.load(std::memory_order_relaxed)) work.help();
      });
    }
    const auto opener = std::this_thread::get_id();
    std::vector<std::uint64_t> values;
    bool right = true;
    // (All helpers may stand still for many runs.)
    for (std::uint64_t run = 1; run <= 3000 || helped.load() == 0; ++run) {
      values.assign(1 + run % 9, 0);
      work.run(
          static_cast<std::uint32_t>(values.size()),
          [&, run](std::uint32_t i) {
            values[i] += run;
            if (std::this_thread::get_id() != opener) {
              helped.fetch_add(1, std::memory_order_relaxed);
            }
          },
          [&] {
            if (run % 100 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
          });
      for (const std::uint64_t value : values) right = right && value == run;
    }
    over.store(true, std::memory_order_relaxed);
    team.clear();
    CHECK(right);
  }
}

TEST_CASE("who has begun a part is waited for, however long it takes") {
  JointWork work;
  std::atomic<bool> open{false};
  std::jthread helper([&] {
    while (!open.load()) std::this_thread::yield();
    work.help();
  });
  const auto opener = std::this_thread::get_id();
  std::atomic<int> done{0};
  std::atomic<bool> begun{false};
  work.run(
      2,
      [&](std::uint32_t) {
        if (std::this_thread::get_id() == opener) {
          while (!begun.load()) std::this_thread::yield();
        } else {
          begun.store(true);
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        done.fetch_add(1);
      },
      [&] { open.store(true); });
  CHECK(done.load() == 2);
}
