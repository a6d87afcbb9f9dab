// All workers wait, nobody is forgotten, and a stop lets everybody go.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "leashed/engine/pause.h"

using leashed::Pause;
using leashed::StopFlag;
using leashed::StopReason;

TEST_CASE("A pause falls due before the updates with a multiple of its interval") {
  const Pause pause(1, 10);
  CHECK(pause.due(20));
  CHECK(!pause.due(21));
  CHECK(pause.due(18, 3));  // 18, 19, 20
  CHECK(!pause.due(18, 2));
  CHECK(pause.due(20, 64));
  CHECK(pause.due(~std::uint64_t{0} - 5));  // 2^64 - 6
}

TEST_CASE("While a pause is complete no worker steps, and none is forgotten that has ended") {
  constexpr std::size_t kWorkers = 4;
  constexpr std::uint64_t kEnd = 3000;
  Pause pause(kWorkers, 100);
  StopFlag stop;
  std::atomic<std::uint64_t> next{1}, made{0}, ended{0};
  std::vector<std::jthread> workers;
  for (std::size_t w = 0; w < kWorkers; ++w) {
    workers.emplace_back([&] {
      for (std::uint64_t k; (k = next.fetch_add(1)) < kEnd;) {
        if (pause.due(k)) pause.ask();
        pause.pass(stop);
        made.fetch_add(1);
      }
      pause.leave();
      ended.fetch_add(1);
    });
  }
  std::uint64_t pauses = 0;
  while (ended.load() < kWorkers) {
    if (!pause.complete()) {
      std::this_thread::yield();
      continue;
    }
    ++pauses;
    const std::uint64_t before = made.load();
    for (int i = 0; i < 100; ++i) std::this_thread::yield();
    CHECK(made.load() == before);
    pause.go_on();
  }
  CHECK(made.load() == kEnd - 1);
  CHECK(pauses >= 1);
  CHECK(pauses <= kEnd / 100);
}

TEST_CASE("Whoever waits in a pause goes when the run is stopped") {
  Pause pause(2, 10);
  StopFlag stop;
  pause.ask();
  std::jthread worker([&] { CHECK(pause.pass(stop) > 0); });
  CHECK(!pause.complete());  // the other one does not wait
  stop.stop(StopReason::interrupted);
}

TEST_CASE(
    "Each pass is judged at a moment of its own, when all of it is done and none of the next") {
  constexpr std::uint64_t kPass = 3, kPasses = 40;  // fewer batches than workers
  constexpr std::size_t kWorkers = 5;
  Pause pause(kWorkers, 0, true);
  StopFlag stop;
  std::atomic<std::uint64_t> next{0}, made{0}, ended{0};
  std::vector<std::jthread> workers;
  for (std::size_t w = 0; w < kWorkers; ++w) {
    workers.emplace_back([&] {
      for (std::uint64_t k; (k = next.fetch_add(1)) < kPass * kPasses;) {
        pause.pass(stop, k / kPass);
        made.fetch_add(1);
      }
      pause.leave();
      ended.fetch_add(1);
    });
  }
  std::uint64_t judged = 0;
  while (ended.load() < kWorkers) {
    if (!pause.complete()) {
      std::this_thread::yield();
      continue;
    }
    CHECK(pause.at_end());
    ++judged;
    for (int i = 0; i < 20; ++i) std::this_thread::yield();  // slower than a pass
    CHECK(made.load() == judged * kPass);
    pause.go_on(true);
  }
  CHECK(judged == kPasses - 1);  // the last one ends with the run
}

TEST_CASE("A pause that is asked for while some wait for the end of a pass is none of its end") {
  Pause pause(2, 10, true);
  StopFlag stop;
  std::jthread at_end([&] { CHECK(pause.pass(stop, 1) > 0); });
  pause.ask();
  std::atomic<bool> passed{false};
  std::jthread other([&] {
    CHECK(pause.pass(stop, 0) > 0);
    passed = true;
    CHECK(pause.pass(stop, 1) > 0);
  });
  while (!pause.complete()) std::this_thread::yield();
  CHECK(pause.asked());
  CHECK(!pause.at_end());
  pause.go_on();
  while (!pause.complete()) std::this_thread::yield();
  CHECK(passed);
  CHECK(pause.at_end());
  pause.go_on(true);
}

TEST_CASE("Who has no batch waits where somebody waits for the end of a pass") {
  Pause pause(2, 0, true);
  StopFlag stop;
  CHECK(pause.pass(stop, Pause::kAny) == 0);
  pause.reach(1);
  CHECK(pause.holds(Pause::kAny));
  std::jthread without([&] { CHECK(pause.pass(stop, Pause::kAny) > 0); });
  std::jthread at_end([&] { CHECK(pause.pass(stop, 1) > 0); });
  while (!pause.complete()) std::this_thread::yield();
  CHECK(pause.at_end());
  pause.go_on(true);
}
