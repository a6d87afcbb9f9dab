#include "leashed/sparse/racy_runs.h"

#include <algorithm>

#include "leashed/base/clock.h"

namespace leashed {

RacyRuns::RacyRuns(float* buffer, const Layout& layout, const Rule& rule,
                   std::atomic<std::uint64_t>& t, const SparseUse& use, std::size_t workers,
                   bool copies)
    : buffer_(buffer),
      stride_(layout.stride()),
      rule_(rule),
      t_(t),
      // Relaxed: no worker runs yet.
      seen_(workers, {t.load(std::memory_order_relaxed)}),
      // One worker alone has nobody to be kept apart from.
      replicas_(buffer, layout, copies && workers > 1 ? workers : 0, use),
      shrinks_(replicas_.empty() ? workers : 0, LazyShrink(use.shape.intercepts, use.active)) {}

InPlaceView RacyRuns::open(std::size_t worker, std::uint64_t updates) {
  // As Hogwild counts: release, since whoever reads this count with acquire also sees what this
  // thread wrote before; acquire, since its own writes do not come before the count is taken.
  const std::uint64_t t = t_.fetch_add(updates, std::memory_order_acq_rel);
  if (!replicas_.empty()) {
    return {replicas_.local(worker),  replicas_.stride(), t,      &rule_, 0,
            replicas_.effect(worker), replicas_.active(), buffer_};
  }
  seen_[worker].t = t + updates;
  return {buffer_, stride_, t, &rule_, 0, {.log_shrink = shrinks_[worker].total()}};
}

// Without copies every batch reads what is there, so it is behind by what the others did while this
// worker did one update. With copies, by what they have done since the last merge before this run.
ClosedRun RacyRuns::close(std::size_t worker, std::uint64_t updates, const RunEffect& effect) {
  const double start = now();
  // Acquire: pairs with the increment in open, as Hogwild::read does.
  const std::uint64_t t = t_.load(std::memory_order_acquire);
  std::uint64_t& seen = seen_[worker].t;
  ClosedRun result;
  if (!replicas_.empty()) {
    result.staleness = t - updates - seen;
    seen = t;
    replicas_.merge(worker, buffer_, effect);
  } else {
    result.staleness = (t - seen + updates / 2) / std::max<std::uint64_t>(1, updates);
    shrinks_[worker].advance(effect.log_shrink, effect.whole, buffer_);
  }
  result.update_seconds = now() - start;
  return result;
}

void RacyRuns::leave(std::size_t worker) {
  if (!replicas_.empty()) replicas_.merge_all(worker, buffer_);
}

}  // namespace leashed
