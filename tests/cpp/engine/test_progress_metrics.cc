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
  BatchView view(float* logits, float logit) {
    BatchView batch{nullptr, Targets(labels.data()), kBatch};
    batch.targets.users = users.data();
    batch.logits = logits;
    for (std::size_t i = 0; i < kBatch; ++i) logits[i] = logit;
    return batch;
  }

  std::vector<std::int32_t> labels;
  std::vector<std::uint64_t> users;
};

}  // namespace

TEST_CASE("a worker hands over after its next batch, and at the end everything is taken") {
  ProgressMetrics metrics(2, 100);
  Made made(3);
  const auto add = [&](std::size_t worker, float logit) {
    metrics.add(worker, made.view(metrics.logits(worker, kBatch), logit));
  };
  metrics.ask();
  CHECK(metrics.take(0, 0) == nullptr);
  add(0, 1);  // has been asked
  add(0, 1);  // in its other part
  const auto first = metrics.take(1, 1);
  REQUIRE(first != nullptr);
  CHECK(first->window.rows == kBatch);
  metrics.ask();
  add(1, 2);
  CHECK(metrics.take(2, 2)->total.rows == 2 * kBatch);
  CHECK(metrics.take(2.5, 2) == nullptr);
  add(1, 2);
  metrics.workers_ended();
  const auto last = metrics.take(3, 4);
  REQUIRE(last != nullptr);
  CHECK(last->window.rows == 2 * kBatch);
  CHECK(last->total.rows == 4 * kBatch);
  CHECK(last->total.users == 1);
  CHECK(last->total.gauc == 0.5);
  CHECK(metrics.take(4, 4) == nullptr);
  CHECK(metrics.windows().size() == 3);
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
        metrics.add(id, made.view(metrics.logits(id, kBatch), i % 2 == 0 ? 1.0f : -1.0f));
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
    rows += scored->window.rows;
    CHECK(scored->total.rows == rows);
    CHECK(scored->window.rows % kBatch == 0);
    CHECK(scored->window.auc == 0.5);  // of whole batches alone
  }
  CHECK(rows == kWorkers * kBatches * kBatch);
}
