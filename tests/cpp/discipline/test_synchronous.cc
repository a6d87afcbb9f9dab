// Lockstep: whoever leaves is not waited for, and the monitor is kept out only while theta changes.
#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "leashed/discipline/synchronous.h"
#include "leashed/update/registry.h"

using namespace leashed;

namespace {

constexpr std::size_t kDimension = 40;

struct Fixture {
  std::vector<float> initial = std::vector<float>(kDimension, 0.0f);
  std::unique_ptr<Rule> rule = make_rule({"sgd", {{"lr", 1}}});
  Synchronous discipline;
  explicit Fixture(std::size_t workers)
      : discipline({initial.data(), kDimension, workers, 1, *rule}) {}

  // As engine/worker.cc does, until the discipline says that it is over; the steps taken.
  int work(std::size_t worker, const std::function<void(int step)>& before_publish,
           const std::function<bool(int step)>& wish) {
    std::vector<float> gradient(kDimension, -1.0f);
    int steps = 0;
    while (discipline.proceed(worker, wish(steps))) {
      discipline.read(worker);
      before_publish(steps);
      std::fill(gradient.begin(), gradient.end(), -1.0f);
      if (!discipline.publish(worker, gradient.data()).abandoned) ++steps;
    }
    discipline.leave(worker);
    return steps;
  }
};

}  // namespace

TEST_CASE("a worker that leaves before its gradient is there, or after, is waited for no more") {
  for (const bool with_gradient : {false, true}) {
    CAPTURE(with_gradient);
    for (int step = 0; step < 20; ++step) {
      Fixture run(4);
      std::vector<int> steps(3);
      std::vector<std::jthread> others;
      for (std::size_t worker = 0; worker < 3; ++worker) {
        others.emplace_back([&, worker] {
          steps[worker] = run.work(
              worker, [](int) {}, [](int) { return true; });
        });
      }
      std::vector<float> gradient(kDimension, -1.0f);
      for (int i = 0; i <= step; ++i) {
        REQUIRE(run.discipline.proceed(3, true));
        run.discipline.read(3);
        std::fill(gradient.begin(), gradient.end(), -1.0f);
        if (i < step || with_gradient)
          REQUIRE(run.discipline.publish(3, gradient.data()).published);
      }
      run.discipline.leave(3);
      others.clear();
      for (const int taken : steps) CHECK(taken == step + with_gradient);
      run.discipline.with_snapshot([&](const float* theta, std::uint64_t t) {
        CHECK(t == static_cast<std::uint64_t>(step + with_gradient));
        CHECK(theta[0] == static_cast<float>(t));
      });
    }
  }
}

TEST_CASE("workers that never began are not waited for") {
  Fixture run(3);
  std::jthread only([&] {
    CHECK(run.work(
              0, [](int) {}, [](int) { return true; }) == 0);
  });
  run.discipline.leave(1);
  run.discipline.leave(2);
}

TEST_CASE("the monitor looks while workers wait for another's gradient") {
  Fixture run(2);
  std::atomic<bool> seen{false};
  // The second worker has no gradient until the monitor has looked, or long has passed.
  const auto wait = [&](int) {
    for (int i = 0; i < 60'000 && !seen.load(std::memory_order_acquire); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(seen.load(std::memory_order_acquire));
  };
  std::atomic<bool> first_waits{false};
  std::vector<std::jthread> workers;
  workers.emplace_back([&] {
    run.work(
        0, [&](int) { first_waits.store(true, std::memory_order_release); },
        [](int step) { return step < 1; });
  });
  workers.emplace_back([&] { run.work(1, wait, [](int) { return true; }); });
  while (!first_waits.load(std::memory_order_acquire)) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that it is in publish
  run.discipline.with_snapshot([&](const float*, std::uint64_t t) { CHECK(t == 0); });
  seen.store(true, std::memory_order_release);
}
