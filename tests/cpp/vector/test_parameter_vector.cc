// The invariants of vector/parameter_vector.h under stress: every vector that is read is internally
// consistent, t advances without gaps, live buffers stay within the bound, nothing leaks.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/vector/parameter_vector.h"

using leashed::ParameterVector;

namespace {

constexpr std::size_t kLength = 257;

bool holds_only(const float* values, std::uint64_t expected) {
  return std::all_of(values, values + kLength,
                     [expected](float v) { return v == static_cast<float>(expected); });
}

// Version t holds t in every element.
void fill_next(ParameterVector::Draft& next, const ParameterVector::Pin& old) {
  for (std::size_t i = 0; i < kLength; ++i) next.data()[i] = old.data()[i] + 1;
}

}  // namespace

TEST_CASE("a pinned vector does not change while others are published") {
  const std::vector<float> zeros(kLength, 0.0f);
  ParameterVector vector(zeros.data(), kLength, 1, 1);
  const ParameterVector::Pin first = vector.pin();
  for (std::uint64_t t = 1; t <= 100; ++t) {
    ParameterVector::Draft next = vector.claim();
    ParameterVector::Pin old = vector.pin();
    fill_next(next, old);
    REQUIRE(vector.publish(old, next));
    CHECK_FALSE(old);
    CHECK_FALSE(next);
    CHECK(holds_only(first.data(), 0));
    CHECK(vector.live() == 2);
  }
  CHECK(vector.pin().t() == 100);
  CHECK(first.t() == 0);
}

TEST_CASE("publish fails, and keeps both, where another vector came first") {
  const std::vector<float> zeros(kLength, 0.0f);
  ParameterVector vector(zeros.data(), kLength, 2, 0);
  ParameterVector::Draft mine = vector.claim();
  ParameterVector::Draft others = vector.claim();
  ParameterVector::Pin old = vector.pin();
  ParameterVector::Pin same = vector.pin();
  fill_next(others, same);
  REQUIRE(vector.publish(same, others));
  CHECK_FALSE(vector.publish(old, mine));
  CHECK(old);
  CHECK(mine);
  CHECK(vector.live() == 3);
  old.release();
  CHECK(vector.live() == 2);
  mine = ParameterVector::Draft();
  CHECK(vector.live() == 1);
}

TEST_CASE("a publish may leave t alone, and is seen by whoever held the vector before") {
  const std::vector<float> zeros(kLength, 0.0f);
  ParameterVector vector(zeros.data(), kLength, 2, 0, 7);
  ParameterVector::Draft mine = vector.claim(), others = vector.claim();
  ParameterVector::Pin old = vector.pin(), same = vector.pin();
  fill_next(others, same);
  REQUIRE(vector.publish(same, others, false));
  fill_next(mine, old);
  CHECK_FALSE(vector.publish(old, mine));  // of the same t, but not the same vector
  old.release();
  old = vector.pin();
  CHECK(old.t() == 7);
  CHECK(holds_only(old.data(), 1));
  fill_next(mine, old);
  REQUIRE(vector.publish(old, mine));
  CHECK(vector.pin().t() == 8);
  CHECK(holds_only(vector.pin().data(), 2));
}

TEST_CASE("a pool beyond 16-bit slot numbers is refused") {
  const float zero = 0;
  CHECK_THROWS_AS(ParameterVector(&zero, 1, 40000, 0), leashed::Error);
}

TEST_CASE("stress: consistent reads, t without gaps, bounded and leak-free") {
  for (const std::size_t writers : {2, 8, 32}) {
    CAPTURE(writers);
    const std::size_t readers = std::max<std::size_t>(1, writers / 4);
    const std::size_t updates = 3000 / writers;
    const std::vector<float> zeros(kLength, 0.0f);
    ParameterVector vector(zeros.data(), kLength, writers, readers);
    std::vector<std::vector<std::uint64_t>> published(writers);
    // Relaxed: each is read after the threads are joined, or only as a hint.
    std::atomic<bool> consistent{true}, bounded{true}, monotonic{true}, done{false};
    const auto note = [](std::atomic<bool>& flag, bool holds) {
      if (!holds) flag.store(false, std::memory_order_relaxed);
    };
    {
      std::vector<std::jthread> reading, writing;
      for (std::size_t r = 0; r < readers; ++r) {
        reading.emplace_back([&] {
          std::uint64_t last = 0;
          while (!done.load(std::memory_order_relaxed)) {
            const ParameterVector::Pin pin = vector.pin();
            note(consistent, holds_only(pin.data(), pin.t()));
            note(monotonic, pin.t() >= last);
            last = pin.t();
            note(bounded, vector.live() <= 2 * writers + readers);
            std::this_thread::yield();
          }
        });
      }
      for (std::size_t w = 0; w < writers; ++w) {
        writing.emplace_back([&, w] {
          for (std::size_t i = 0; i < updates; ++i) {
            {
              const ParameterVector::Pin view = vector.pin();
              note(consistent, holds_only(view.data(), view.t()));
            }
            ParameterVector::Draft next = vector.claim();
            for (;;) {
              ParameterVector::Pin latest = vector.pin();
              const std::uint64_t t = latest.t();
              fill_next(next, latest);
              if (vector.publish(latest, next)) {
                published[w].push_back(t + 1);
                break;
              }
            }
          }
        });
      }
      writing.clear();
      done.store(true, std::memory_order_relaxed);
    }
    CHECK(consistent);
    CHECK(monotonic);
    CHECK(bounded);
    std::vector<std::uint64_t> all;
    for (const auto& own : published) {
      CHECK(std::is_sorted(own.begin(), own.end()));
      all.insert(all.end(), own.begin(), own.end());
    }
    std::sort(all.begin(), all.end());
    REQUIRE(all.size() == writers * updates);
    for (std::size_t i = 0; i < all.size(); ++i) REQUIRE(all[i] == i + 1);
    CHECK(vector.live() == 1);
    CHECK(vector.allocated() <= 2 * writers + readers);
    CHECK(holds_only(vector.pin().data(), writers * updates));
  }
}
