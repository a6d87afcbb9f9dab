// The protocol of sparse runs: versions, staleness, and what runs do beside adding gradients.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "leashed/sparse/exclusive_runs.h"
#include "leashed/sparse/racy_runs.h"
#include "leashed/update/registry.h"

using namespace leashed;

namespace {

constexpr std::size_t kColumns = 100;

struct Parameters {
  std::vector<float> buffer = std::vector<float>(kColumns + 1, 1.0f);
  std::vector<float> mean_squares = std::vector<float>(kColumns, 0.1f);
  Layout layout{kColumns + 1};
  SparseUse use{kColumns + 1, {}, mean_squares.data()};
  std::unique_ptr<Rule> rule = make_rule({"sgd", {{"lr", 0.1}}});
};

}  // namespace

TEST_CASE("a run's effect adds up, with the same bits wherever it is cut in two") {
  const RunEffect none;
  const RunEffect whole = none.with(100, 0.1, 0.25, 0.01);
  CHECK(whole.contraction == doctest::Approx(100 * 0.1 * 0.25));
  CHECK(whole.log_shrink == doctest::Approx(100 * std::log(1 - 0.1 * 0.01)));
  CHECK(none.with(100, 0.1, 0.25, 0).log_shrink == 0);
  for (const std::uint64_t cut : {0u, 1u, 37u, 100u}) {
    const RunEffect parts = none.with(cut, 0.1, 0.25, 0.01).with(100 - cut, 0.1, 0.25, 0.01);
    CHECK(parts.log_shrink == whole.log_shrink);
  }
}

TEST_CASE("exclusive runs come one after the other, each on all that came before") {
  Parameters p;
  std::mutex mutex;
  std::uint64_t t = 7;
  ExclusiveRuns runs(p.buffer.data(), p.layout, *p.rule, mutex, t, p.use);
  std::vector<std::jthread> workers;
  for (std::size_t worker = 0; worker < 3; ++worker) {
    workers.emplace_back([&, worker] {
      for (int i = 0; i < 200; ++i) {
        const InPlaceView view = runs.open(worker, 5);
        CHECK(view.rule == p.rule.get());
        CHECK(view.theta[0] == static_cast<float>(view.t - 7) / 5 + 1);
        view.theta[0] += 1;
        CHECK(runs.close(worker, 5, view.effect.with(5, 0.1, 1, 0.001)).staleness == 0);
      }
      runs.leave(worker);
    });
  }
  workers.clear();
  CHECK(t == 7 + 3 * 200 * 5);
  runs.shrink().complete(p.buffer.data(), runs.shrink().progress());
  CHECK(double{p.buffer[1]} == doctest::Approx(std::pow(1 - 0.1 * 0.001, 3000)).epsilon(1e-4));
}

TEST_CASE("runs on the shared vector count what others did while one update was made") {
  Parameters p;
  std::atomic<std::uint64_t> t{0};
  RacyRuns runs(p.buffer.data(), p.layout, *p.rule, t, p.use, 2, false);
  CHECK(runs.copies() == 0);
  CHECK(runs.open(0, 10).t == 0);
  CHECK(runs.open(1, 10).t == 10);
  CHECK(runs.open(0, 10).theta == p.buffer.data());
  CHECK(runs.close(0, 10, {}).staleness == 0);
  CHECK(runs.close(1, 10, {}).staleness == 1);  // 10 others during 10 of its own
  CHECK(t == 30);
}

TEST_CASE("runs on copies count what others did since the last merge before the run") {
  Parameters p;
  std::atomic<std::uint64_t> t{5};
  RacyRuns runs(p.buffer.data(), p.layout, *p.rule, t, p.use, 2, true);
  CHECK(runs.copies() == 4);
  CHECK(runs.shrinks().empty());
  const InPlaceView first = runs.open(0, 10), second = runs.open(1, 10);
  CHECK(first.t == 5);
  CHECK(second.t == 15);
  first.theta[3] += 1;
  second.theta[3] += 2;
  CHECK(p.buffer[3] == 1);
  CHECK(runs.close(0, 10, first.effect).staleness == 10);
  CHECK(p.buffer[3] == 2);
  CHECK(runs.close(1, 10, second.effect).staleness == 10);
  CHECK(p.buffer[3] == 4);
  CHECK(runs.open(1, 1).theta[3] == 4);
  CHECK(runs.close(1, 1, {}).staleness == 0);
  for (const std::size_t worker : {0, 1}) runs.leave(worker);
}

TEST_CASE("one worker alone has no copy") {
  Parameters p;
  std::atomic<std::uint64_t> t{0};
  RacyRuns runs(p.buffer.data(), p.layout, *p.rule, t, p.use, 1, true);
  CHECK(runs.copies() == 0);
  CHECK(runs.open(0, 4).theta == p.buffer.data());
}
