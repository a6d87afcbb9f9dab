// What all workers of one training share: a feed, which hands out batches; a holder of the
// parameters, which is the discipline; a row store; a source; and observers of their steps.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "leashed/base/aligned.h"
#include "leashed/engine/feed.h"
#include "leashed/engine/position.h"
#include "leashed/engine/run.h"

namespace leashed {

class Discipline;
class SparseRuns;
struct TrainOptions;

struct Training : Run {
  Training(const GradientSource& source, const DatasetView& data, Discipline& discipline,
           const TrainOptions& options);

  static std::uint64_t left(std::uint64_t all, std::uint64_t used) {
    return all > used ? all - used : 0;
  }

  Discipline& discipline;
  const std::unique_ptr<const BatchSource> batches;
  // Where workers make updates themselves, a run of them at a time; else null.
  SparseRuns* const sparse_runs;
  const InPlaceUpdates* const in_place;  // then: the source's
  const std::size_t claim;               // batches that a worker claims at once
  const double curvature;                // in sparse runs: of the mean loss, at most
  const bool finds_losses;               // of its batches, though it makes sparse runs
  const Position from;
  // Number of the first batch that there is not. In sparse runs, every batch is an update.
  const std::uint64_t end;
  const std::unique_ptr<Feed> feed;

  // Each worker claims one update that it may publish from it, where it makes no sparse runs.
  // Relaxed: distinct numbers are all that is asked of it.
  alignas(kCacheLine) std::atomic<std::uint64_t> next_update;
};

}  // namespace leashed
