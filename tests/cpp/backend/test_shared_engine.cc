// SharedEngine and VectorEngine: threads of one process take turns, any of them may close it, and
// views outlive that.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "leashed/backend/shared_engine.h"
#include "leashed/backend/vector_engine.h"
#include "leashed/base/error.h"

using namespace leashed;

namespace {

constexpr std::size_t kLength = 257;
const std::vector<float> kZeros(kLength, 0.0f), kMinusOnes(kLength, -1.0f);

bool holds_only(const float* values, std::uint64_t expected) {
  return std::all_of(values, values + kLength,
                     [=](float v) { return v == static_cast<float>(expected); });
}

}  // namespace

TEST_CASE("a shared vector is closed by one thread while others read, push, copy and ask") {
  const std::string name = "test.engine." + std::to_string(getpid());
  const SharedEngine::Parts parts{kLength, {"sgd", {{"lr", 1}}}, {"none"}, 1e18};
  const auto keeper = SharedEngine::create(name, kZeros.data(), parts, 2, false, "");
  // Relaxed: read after the threads are joined.
  std::atomic<std::uint64_t> published{0}, refused{0};
  std::atomic<bool> consistent{true};
  for (int round = 0; round < 20; ++round) {
    SharedEngine engine(SharedVector::attach(name), parts);
    const auto until_closed = [&](const auto& use) {
      return [&engine, &refused, use] {
        try {
          for (;;) use(engine);
        } catch (const Error& error) {
          CHECK(doctest::String(error.what()) == "this SharedVector is closed; attach again");
          refused.fetch_add(1, std::memory_order_relaxed);
        }
      };
    };
    const auto see = [&](const float* theta, std::uint64_t t) {
      if (!holds_only(theta, t)) consistent.store(false, std::memory_order_relaxed);
    };
    {
      std::vector<std::jthread> threads;
      threads.emplace_back(until_closed([&](SharedEngine& e) {
        const auto held = e.hold();
        see(held->view.theta, held->view.t);
      }));
      threads.emplace_back(until_closed([&](SharedEngine& e) {
        published.fetch_add(e.push(kMinusOnes.data(), e.t()).published, std::memory_order_relaxed);
      }));
      threads.emplace_back(until_closed([&](SharedEngine& e) {
        std::vector<float> theta(kLength);
        const std::uint64_t t = e.copy_state(theta.data());
        see(theta.data(), t);
      }));
      threads.emplace_back(until_closed([&](SharedEngine& e) {
        e.reap();
        const std::size_t live = e.live(), participants = e.pids().size();
        CHECK(live >= 1);
        CHECK(participants <= 2);
      }));
      const auto kept = engine.hold();
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      engine.close();
      see(kept->view.theta, kept->view.t);
    }
    CHECK(engine.closed());
    engine.close();
    CHECK_THROWS_AS(engine.hold(), Error);
  }
  CHECK(consistent);
  CHECK(refused == 4 * 20);
  CHECK(keeper->t() == published);
  CHECK(keeper->live() == 1);
  CHECK(keeper->pids().size() == 1);
}

TEST_CASE("a parameter vector refuses views and updates beyond what it was made for") {
  VectorEngine vector(kZeros.data(), kLength, 1, 2);
  auto first = vector.hold();
  const auto second = vector.hold();
  CHECK_THROWS_WITH(vector.hold(), doctest::Contains("with more readers"));
  CHECK(vector.update(kMinusOnes.data(), 1, 1e18, 0).published);
  CHECK(vector.t() == 1);
  CHECK(holds_only(first->view.theta, 0));
  first.reset();
  CHECK(holds_only(vector.hold()->view.theta, 1));
}
