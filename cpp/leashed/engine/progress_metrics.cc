#include "leashed/engine/progress_metrics.h"

#include <algorithm>

namespace leashed {

ProgressMetrics::ProgressMetrics(std::size_t workers, std::size_t kept, std::size_t heads)
    : window_(heads, kept), total_(heads, kept) {
  for (std::size_t k = 0; k < heads; ++k) limits_.emplace_back(kept);
  // Both parts of all workers have no more uncounted than an eighth of what is kept.
  const std::size_t at_once = std::max<std::size_t>(1, kept / (16 * workers));
  for (std::size_t i = 0; i < workers; ++i) {
    workers_.push_back(std::make_unique<Worker>(heads, kept, &limits_, at_once));
  }
}

void ProgressMetrics::add(std::size_t worker, const BatchView& batch) {
  Worker& own = *workers_[worker];
  own.parts[own.counting].add(batch.logits, batch.size, batch.targets);
  // Acquire: pairs with ask()'s release, so that the other part is seen cleared.
  if (own.turn.load(std::memory_order_acquire) != Turn::asked) return;
  own.counting = 1 - own.counting;
  // Release: pairs with take()'s acquire, which sees all that was counted in the part.
  own.turn.store(Turn::handed, std::memory_order_release);
}

void ProgressMetrics::ask() {
  for (const auto& worker : workers_) {
    // Relaxed: what the worker hands over is looked at by take() alone.
    if (worker->turn.load(std::memory_order_relaxed) != Turn::counting) continue;
    // Release: pairs with add()'s acquire.
    worker->turn.store(Turn::asked, std::memory_order_release);
  }
}

void ProgressMetrics::collect(ScoredHeads& part) {
  window_.merge(part);
  part.clear(&total_);
}

std::shared_ptr<const ScoredWindow> ProgressMetrics::take(double seconds, std::uint64_t updates) {
  window_.clear();
  for (const auto& worker : workers_) {
    // Acquire: pairs with add()'s release.
    if (worker->turn.load(std::memory_order_acquire) == Turn::handed) {
      collect(worker->parts[worker->handed]);
      worker->handed = 1 - worker->handed;
      // Relaxed: the worker does nothing about it; that the part is clear ask() tells it.
      worker->turn.store(Turn::counting, std::memory_order_relaxed);
    }
    if (ended_) collect(worker->parts[worker->handed]);
  }
  if (window_.empty()) return nullptr;
  total_.merge(window_);
  windows_.push_back(std::make_shared<const ScoredWindow>(
      ScoredWindow{seconds, updates, window_.scores(), total_.scores()}));
  return windows_.back();
}

}  // namespace leashed
