#include "leashed/engine/training.h"

#include <algorithm>

#include "leashed/data/make_batches.h"
#include "leashed/discipline/discipline.h"

namespace leashed {

Training::Training(const GradientSource& source, const DatasetView& data, Discipline& discipline,
                   const StopRules& until, std::size_t workers, std::size_t batch_size,
                   std::uint64_t seed, const Position& from, RowStore* rows, Leases* leases,
                   Synchronisation* synchronisation, TraceWriter* trace, const StreamedData* stream,
                   bool whole_passes)
    : Run(source, data, discipline, until, workers, batch_size, rows),
      discipline(discipline),
      batches(make_batches(data, batch_size, seed, stream, whole_passes)),
      sparse_runs(data.sparse || stream ? discipline.sparse_runs() : nullptr),
      run_batches(sparse_runs && !stream ? static_cast<const RunBatches*>(batches.get()) : nullptr),
      streams_runs(sparse_runs && stream),
      claim(sparse_runs ? RunSampler::run_of(batch_size) : 1),
      curvature(sparse_runs ? source.curvature() * data.mean_weight() : 0),
      from(from),
      leases(leases),
      synchronisation(synchronisation),
      trace(trace),
      end(sparse_runs ? from.batches + std::min(left(until.updates, from.updates),
                                                left(until.batches, from.batches))
                      : until.batches),
      next_batch(from.batches / claim * claim),
      next_update(from.updates) {}

}  // namespace leashed
