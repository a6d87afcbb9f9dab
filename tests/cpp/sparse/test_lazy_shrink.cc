// Lazy weight decay against the plain one: every weight multiplied after every run of updates.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "leashed/sparse/lazy_shrink.h"

using namespace leashed;

namespace {

constexpr std::size_t kIntercepts = 3, kWeights = 10000, kBeyond = 5;

struct Run {
  std::vector<float> theta = std::vector<float>(kIntercepts + kWeights + kBeyond, 1.0f);
  LazyShrink shrink{kIntercepts, kIntercepts + kWeights};
  double total = 0;

  // A run that adds something to one weight and shrinks all.
  void step(std::size_t i) {
    theta[kIntercepts + 37 * i % kWeights] += 0.5f;
    total += std::log1p(-0.003 * static_cast<double>(1 + i % 5));
    shrink.advance(total, i % 7 != 3, theta.data());
  }
  std::vector<float> completed() const {
    std::vector<float> copy = theta;
    shrink.complete(copy.data(), shrink.progress());
    return copy;
  }
};

}  // namespace

TEST_CASE("what was multiplied now and then is, when completed, what was multiplied every time") {
  Run run;
  std::vector<double> plain(run.theta.size(), 1.0);
  for (std::size_t i = 0; i < 200; ++i) {
    run.step(i);
    plain[kIntercepts + 37 * i % kWeights] += 0.5;
    for (std::size_t j = kIntercepts; j < kIntercepts + kWeights; ++j) {
      plain[j] *= 1 - 0.003 * static_cast<double>(1 + i % 5);
    }
  }
  const std::vector<float> lazy = run.completed();
  std::size_t differ = 0;
  for (std::size_t j = 0; j < lazy.size(); ++j) {
    // What a run adds is multiplied with what the weight missed before, which is little here.
    const double tolerance = std::fabs(plain[j]) * 0.05 + 1e-6;
    differ += std::fabs(lazy[j] - plain[j]) > tolerance;
  }
  CHECK(differ == 0);
  for (std::size_t j = 0; j < kIntercepts; ++j) CHECK(lazy[j] == 1);
  for (std::size_t j = kIntercepts + kWeights; j < lazy.size(); ++j) CHECK(lazy[j] == 1);
}

TEST_CASE("each run goes through one part, in turn, unless it was cut short") {
  Run run;
  CHECK(run.shrink.progress().done.size() == LazyShrink::parts(0, kWeights));
  for (std::size_t i = 0; i < 20; ++i) {
    const ShrinkProgress before = run.shrink.progress();
    run.step(i);
    const ShrinkProgress after = run.shrink.progress();
    const bool whole = i % 7 != 3;
    CHECK(after.next == (before.next + (whole ? 1 : 0)) % after.done.size());
    for (std::size_t part = 0; part < after.done.size(); ++part) {
      CHECK(after.done[part] == (whole && part == before.next ? run.total : before.done[part]));
    }
  }
}

TEST_CASE("it goes on from where it was to the same bits") {
  Run whole, part;
  for (std::size_t i = 0; i < 50; ++i) {
    whole.step(i);
    if (i == 23) {
      Run resumed;
      resumed.theta = part.theta;
      resumed.total = part.total;
      resumed.shrink.restore(part.shrink.progress());
      part = resumed;
    }
    part.step(i);
  }
  CHECK(whole.theta == part.theta);
  CHECK(whole.completed() == part.completed());
}

TEST_CASE("without a penalty, or without weights, nothing is multiplied") {
  std::vector<float> theta(10, 2.0f);
  LazyShrink none(1, 1), idle(1, 10);
  none.advance(-1, true, theta.data());
  idle.advance(0, true, theta.data());
  idle.complete(theta.data(), idle.progress());
  CHECK(theta == std::vector<float>(10, 2.0f));
  CHECK_FALSE(idle.progress().begun());
}

TEST_CASE("decay waits for the end of a run only where that changes little") {
  CHECK(LazyShrink::suits(0, 256));
  CHECK(LazyShrink::suits(1e-3, 256));
  CHECK_FALSE(LazyShrink::suits(1e-2, 256));
  CHECK(LazyShrink::suits(0.2, 1));
  for (const double decay : {0.5, 0.999, 1.0, 1.5, 1.999}) {
    CHECK_FALSE(LazyShrink::suits(decay, 1));
  }
}

TEST_CASE("it catches up: theta is then what it would be completed, and misses nothing") {
  Run run;
  for (std::size_t i = 0; i < 10; ++i) run.step(i);
  const std::vector<float> completed = run.completed();
  run.shrink.catch_up(run.theta.data());
  CHECK(run.theta == completed);
  CHECK(run.completed() == completed);
}
