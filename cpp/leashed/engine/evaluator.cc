#include "leashed/engine/evaluator.h"

#include <algorithm>
#include <limits>

#include "leashed/base/clock.h"
#include "leashed/data/rows_in_order.h"

namespace leashed {
namespace {

constexpr double kAsk = 0.01;  // seconds between two questions whether to go on
// Seconds of work that are worth one more thread; to start one takes a fifth of it or less.
constexpr double kWorthwhile = 3e-4;
constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

}  // namespace

struct Evaluator::Job {
  const float* theta;
  const DatasetView& data;
  std::size_t every;
  float* logits;                               // of all rows, or null
  const float* statistics;                     // likewise
  std::shared_ptr<const NumberScales> scales;  // likewise
  std::vector<Evaluation> parts;  // by chunk, so that their sum does not depend on who did which
  // Relaxed, all three: distinct numbers are all that is asked of the first two, and the last is a
  // hint. What the helpers write is seen after Team::finish.
  std::atomic<std::size_t> next{0};     // chunk that nobody has claimed
  std::atomic<std::size_t> scratch{1};  // that no helper has
  std::atomic<bool> ended{false};       // early
  std::mutex mutex = {};
  std::exception_ptr failure = nullptr;  // the first one's, under the lock

  void end() { ended.store(true, std::memory_order_relaxed); }
};

Evaluation Evaluator::evaluate_chunk(const Job& job, std::size_t chunk, std::size_t reader,
                                     const std::function<bool()>& keep_on) {
  Scratch& scratch = scratch_[reader];
  const DatasetView& data = job.data;
  const std::size_t begin = chunk * kChunk;
  const std::size_t size = std::min(kChunk, data.rows - begin);
  BatchView& batch = scratch.batch.view;
  fill_in_order(data, begin, size, scratch.batch);
  if (rows_) rows_->read(reader, batch, *scratch.rows, keep_on);
  batch.statistics = job.statistics;
  batch.scales = job.scales.get();
  if (scratch.metrics) {
    batch.logits = job.logits ? job.logits + begin * source_.values() : scratch.logits.data();
  }
  const Evaluation found = source_.evaluate(job.theta, batch, *scratch.workspace);
  if (scratch.metrics) scratch.metrics->add(batch.logits, size, batch.targets);
  return found;
}

// At most so many chunks, until there are no more.
void Evaluator::work(Job& job, std::size_t reader, const std::function<bool()>& keep_on,
                     std::size_t most) {
  try {
    prepare(scratch_[reader]);
    const auto goes_on = [&job, &keep_on] {
      if (keep_on && !keep_on()) job.end();
      return !job.ended.load(std::memory_order_relaxed);
    };
    for (std::size_t done = 0; done < most; ++done) {
      if (!goes_on()) return;
      const std::size_t chunk = job.next.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= job.parts.size()) return;
      job.parts[chunk] = evaluate_chunk(job, chunk * job.every, reader, goes_on);
    }
  } catch (...) {
    const std::lock_guard lock(job.mutex);
    if (!job.failure) job.failure = std::current_exception();
    job.end();
  }
}

void Evaluator::prepare(Scratch& scratch) const {
  if (scratch.workspace) return;
  if (source_.gives_logits()) {
    scratch.logits.resize(kChunk * source_.values());
    scratch.metrics.emplace(source_.values());
  }
  if (rows_) scratch.rows = rows_->make_batch();
  scratch.workspace = source_.make_workspace();
}

// Of the evaluation that has ended; the next begins anew.
std::optional<ScoredHeads> Evaluator::gather_metrics() {
  if (!source_.gives_logits()) return std::nullopt;
  std::optional<ScoredHeads> all;
  for (Scratch& scratch : scratch_) {
    if (!scratch.metrics) continue;
    if (!all) all.emplace(source_.values());
    all->merge(*scratch.metrics);
    scratch.metrics->clear();
  }
  return all;
}

std::size_t Evaluator::helpers(std::size_t threads, std::size_t chunks) const {
  const auto worth =
      static_cast<std::size_t>(chunk_seconds_ * static_cast<double>(chunks) / kWorthwhile);
  return std::min({threads - 1, std::max<std::size_t>(chunks, 1) - 1, worth});
}

std::size_t Evaluator::every(const DatasetView& data, std::size_t rows) {
  if (rows == 0 || rows >= data.rows) return 1;
  const std::size_t chunks = (data.rows + kChunk - 1) / kChunk;
  const std::size_t most = std::max<std::size_t>(1, rows / kChunk);
  return (chunks + most - 1) / most;
}

std::optional<Evaluation> Evaluator::operator()(const float* theta, const DatasetView& data,
                                                std::size_t threads, std::size_t every,
                                                float* logits,
                                                std::optional<std::span<const float>> statistics) {
  threads = std::min(threads, processors());
  if (rows_) threads = std::min(threads, rows_->readers());
  if (scratch_.size() < threads) scratch_.resize(threads);
  const std::size_t taken = kChunk * every;
  std::optional<RunningStatistics> running;
  if (!statistics) running = source_.running();
  if (running) statistics = running->values;
  Job job{theta,
          data,
          every,
          logits,
          statistics && !statistics->empty() ? statistics->data() : nullptr,
          source_.scales(),
          std::vector<Evaluation>((data.rows + taken - 1) / taken)};
  std::size_t chunks = job.parts.size();
  if (threads > 1 && chunk_seconds_ == 0 && chunks > 1) {
    const double begin = now();
    work(job, 0, keep_on_, 1);
    chunk_seconds_ = now() - begin;
    --chunks;
  }
  const std::size_t others = helpers(threads, chunks);
  if (others > 0) {
    team_.begin(others, [this, &job] {
      work(job, job.scratch.fetch_add(1, std::memory_order_relaxed), nullptr, kAll);
    });
  }
  work(job, 0, keep_on_, kAll);
  if (others > 0) {
    try {
      while (!team_.wait(kAsk)) {
        if (!keep_on_()) job.end();
      }
    } catch (...) {
      job.end();
      team_.finish();
      gather_metrics();  // which the next evaluation is not to find
      throw;
    }
  }
  std::optional<ScoredHeads> metrics = gather_metrics();
  if (job.failure) std::rethrow_exception(job.failure);
  if (job.ended.load(std::memory_order_relaxed)) return std::nullopt;
  Evaluation total;
  for (const Evaluation& part : job.parts) {
    total.loss_sum += part.loss_sum;
    total.correct += part.correct;
    total.rows += part.rows;
  }
  if (metrics) {
    for (const Scores& head : metrics->scores()) {
      total.heads.push_back({head.auc, head.normalised_entropy});
    }
  }
  return total;
}

}  // namespace leashed
