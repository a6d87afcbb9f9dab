// What workers count while the monitor looks: every batch once, and wholly in one window.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

#include "leashed/engine/progress_metrics.h"

using namespace leashed;

namespace {

constexpr std::size_t kBatch = 8;

// A batch half of whose rows are clicks, all with that logit.
struct Made {
  explicit Made(std::uint64_t user) : users(kBatch, user) {
    for (std::size_t i = 0; i < kBatch; ++i) labels.push_back(i % 2 == 0);
  }
  BatchView view(float logit) {
    BatchView batch{nullptr, Targets(labels.data()), kBatch};
    batch.targets.users = users.data();
    batch.logits = logits.data();
    logits.assign(kBatch, logit);
    return batch;
  }

  std::vector<std::int32_t> labels;
  std::vector<std::uint64_t> users;
  std::vector<float> logits = std::vector<float>(kBatch);
};

}  // namespace

TEST_CASE("a worker hands over after its next batch, and at the end everything is taken") {
  ProgressMetrics metrics(2, 100);
  Made made(3);
  const auto add = [&](std::size_t worker, float logit) { metrics.add(worker, made.view(logit)); };
  metrics.ask();
  CHECK(metrics.take(0, 0) == nullptr);
  add(0, 1);  // has been asked
  add(0, 1);  // in its other part
  const auto first = metrics.take(1, 1);
  REQUIRE(first != nullptr);
  CHECK(first->window.front().rows == kBatch);
  metrics.ask();
  add(1, 2);
  CHECK(metrics.take(2, 2)->total.front().rows == 2 * kBatch);
  CHECK(metrics.take(2.5, 2) == nullptr);
  add(1, 2);
  metrics.workers_ended();
  const auto last = metrics.take(3, 4);
  REQUIRE(last != nullptr);
  CHECK(last->window.front().rows == 2 * kBatch);
  CHECK(last->total.front().rows == 4 * kBatch);
  CHECK(last->total.front().users == 1);
  CHECK(last->total.front().gauc == 0.5);
  CHECK(metrics.take(4, 4) == nullptr);
  CHECK(metrics.windows().size() == 3);
}

TEST_CASE(
    "GAUC is of the same users whoever counts which batches, and whenever the monitor looks") {
  constexpr std::size_t kBatches = 400, kKept = 500, kTurns = 40;
  const auto counted = [](std::size_t workers, auto&& who, std::size_t looks) {
    ProgressMetrics metrics(workers, kKept);
    for (std::size_t i = 0; i < kBatches; ++i) {
      Made made(i % 173);
      const std::size_t worker = who(i);
      BatchView batch = made.view(0);
      for (std::size_t j = 0; j < kBatch; ++j) {
        batch.logits[j] = static_cast<float>((i * kBatch + j) * 37 % 101);
      }
      metrics.add(worker, batch);
      if (looks == 0 || i % looks != 0) continue;
      metrics.ask();
      if (i % 3 == 0) metrics.take(0, 0);
    }
    metrics.workers_ended();
    return metrics.take(1, 1)->total.front();
  };
  const Scores alone = counted(
      1, [](std::size_t) { return 0; }, 0);
  CHECK(alone.users > 10);
  CHECK(alone.user_share < 0.5);
  for (std::size_t turn = 0; turn < kTurns; ++turn) {
    const std::size_t workers = 2 + turn % 5;
    // One has more than its share: of the first rows, or of all.
    const auto who = [&](std::size_t i) { return i % 7 < turn % 7 ? 0 : i * 5 / 3 % workers; };
    const Scores several = counted(workers, who, turn % 2 == 0 ? 0 : turn);
    CHECK(several.rows == alone.rows);
    CHECK(several.users == alone.users);
    CHECK(several.user_share == alone.user_share);
    CHECK(several.gauc == alone.gauc);
    CHECK(several.gauc_error == alone.gauc_error);
  }
}

TEST_CASE("no batch is torn or lost while the monitor looks") {
  constexpr std::size_t kWorkers = 3, kBatches = 20'000;
  ProgressMetrics metrics(kWorkers, 1 << 12);
  std::atomic<std::size_t> running{kWorkers};
  std::vector<std::thread> workers;
  for (std::size_t id = 0; id < kWorkers; ++id) {
    workers.emplace_back([&, id] {
      Made made(id);
      for (std::size_t i = 0; i < kBatches; ++i) {
        metrics.add(id, made.view(i % 2 == 0 ? 1.0f : -1.0f));
      }
      running.fetch_sub(1, std::memory_order_relaxed);  // the joins below order what counts
    });
  }
  while (running.load(std::memory_order_relaxed) > 0) {
    metrics.ask();
    std::this_thread::yield();
    metrics.take(0, 0);
  }
  for (std::thread& worker : workers) worker.join();
  metrics.workers_ended();
  metrics.take(1, 1);
  std::uint64_t rows = 0;
  for (const auto& scored : metrics.windows()) {
    rows += scored->window.front().rows;
    CHECK(scored->total.front().rows == rows);
    CHECK(scored->window.front().rows % kBatch == 0);
    CHECK(scored->window.front().auc == 0.5);  // of whole batches alone
  }
  CHECK(rows == kWorkers * kBatches * kBatch);
}
