#include "leashed/engine/evaluator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>

#include "leashed/base/team.h"

namespace leashed {
namespace {

constexpr auto kAsk = std::chrono::milliseconds(10);

}  // namespace

Evaluator::Evaluator(const GradientSource& source, std::size_t max_threads,
                     std::function<bool()> keep_on)
    : source_(source),
      keep_on_(std::move(keep_on)),
      scratch_(std::min(max_threads, largest_team())) {
  for (Scratch& scratch : scratch_) {
    scratch.workspace = source.make_workspace();
    scratch.rows.resize(kChunk);
  }
}

void Evaluator::evaluate_chunk(const float* theta, const DatasetView& data, std::size_t chunk,
                               Scratch& scratch) {
  const std::size_t begin = chunk * kChunk;
  const std::size_t size = std::min(kChunk, data.rows - begin);
  BatchView batch{scratch.rows.data(), data.targets.from(begin), size};
  if (data.sparse) {
    batch.sparse = data.sparse.from(begin);
  } else {
    for (std::size_t i = 0; i < size; ++i) scratch.rows[i] = data.x + (begin + i) * data.features;
  }
  const Evaluation part = source_.evaluate(theta, batch, *scratch.workspace);
  scratch.sum.loss_sum += part.loss_sum;
  scratch.sum.correct += part.correct;
  scratch.sum.rows += part.rows;
}

std::optional<Evaluation> Evaluator::operator()(const float* theta, const DatasetView& data,
                                                std::size_t threads) {
  threads = std::min(threads, scratch_.size());
  const std::size_t chunks = (data.rows + kChunk - 1) / kChunk;
  for (Scratch& scratch : scratch_) {
    scratch.sum = {};
    scratch.failure = nullptr;
  }
  // Relaxed: a hint to end early; it hands nothing over.
  std::atomic<bool> ended{false};
  const auto work = [&](std::size_t rank, const auto& keep_on) {
    Scratch& scratch = scratch_[rank];
    try {
      // Chunks are dealt out in turn, so that the sums do not depend on who was faster.
      for (std::size_t chunk = rank; chunk < chunks; chunk += threads) {
        if (!keep_on()) ended.store(true, std::memory_order_relaxed);
        if (ended.load(std::memory_order_relaxed)) return;
        evaluate_chunk(theta, data, chunk, scratch);
      }
    } catch (...) {
      scratch.failure = std::current_exception();
      ended.store(true, std::memory_order_relaxed);
    }
  };
  if (threads == 1) {
    work(0, keep_on_);
  } else {
    // The team belongs to a thread of its own: libgomp keeps a team's threads for the thread that
    // opened it, and in the child of a fork the caller's would be gone.
    std::future<void> team = std::async(std::launch::async, [&] {
      run_team(threads, [&](std::size_t rank) { work(rank, [] { return true; }); });
    });
    try {
      while (team.wait_for(kAsk) != std::future_status::ready) {
        if (!keep_on_()) ended.store(true, std::memory_order_relaxed);
      }
    } catch (...) {
      ended.store(true, std::memory_order_relaxed);
      throw;
    }
    team.get();
  }
  Evaluation total;
  for (const Scratch& scratch : scratch_) {
    if (scratch.failure) std::rethrow_exception(scratch.failure);
    total.loss_sum += scratch.sum.loss_sum;
    total.correct += scratch.sum.correct;
    total.rows += scratch.sum.rows;
  }
  if (ended.load(std::memory_order_relaxed)) return std::nullopt;
  return total;
}

}  // namespace leashed
