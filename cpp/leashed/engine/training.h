// What all workers of one training share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "leashed/base/aligned.h"
#include "leashed/data/run_batches.h"
#include "leashed/engine/leases.h"
#include "leashed/engine/position.h"
#include "leashed/engine/run.h"
#include "leashed/engine/synchronisation.h"
#include "leashed/trace/trace_writer.h"

namespace leashed {

class Discipline;
class SparseRuns;
struct StreamedData;

struct Training : Run {
  Training(const GradientSource& source, const DatasetView& data, Discipline& discipline,
           const StopRules& until, std::size_t workers, std::size_t batch_size, std::uint64_t seed,
           const Position& from, RowStore* rows, Leases* leases, Synchronisation* synchronisation,
           TraceWriter* trace, const StreamedData* stream, bool whole_passes);

  static std::uint64_t left(std::uint64_t all, std::uint64_t used) {
    return all > used ? all - used : 0;
  }

  Discipline& discipline;
  const std::unique_ptr<const BatchSource> batches;
  // Where workers make updates themselves, a run of them at a time; else null.
  SparseRuns* const sparse_runs;
  const RunBatches* const run_batches;  // `batches`, then; null where there is a stream
  const bool streams_runs;              // then, and of a stream
  const std::size_t claim;              // batches that a worker claims at once
  const double curvature;               // in sparse runs: of the mean loss, at most
  const Position from;
  Leases* const leases;                    // where batch numbers come from; null: 0, 1, …
  Synchronisation* const synchronisation;  // with other trainings, or null
  TraceWriter* const trace;                // that the training is recorded in, or null
  // Number of the first batch that there is not. In sparse runs, every batch is an update.
  const std::uint64_t end;

  // Each worker claims its next batch number, and, where it makes no sparse runs, one update it may
  // publish, from these. What is claimed for those begins at a multiple of `claim` also where the
  // training goes on from the middle of that. Relaxed: distinct numbers are all that is asked of
  // them.
  alignas(kCacheLine) std::atomic<std::uint64_t> next_batch;
  alignas(kCacheLine) std::atomic<std::uint64_t> next_update;
};

}  // namespace leashed
