#include "leashed/engine/training.h"

#include <algorithm>
#include <bit>

#include "leashed/data/make_batches.h"
#include "leashed/data/run_sampler.h"
#include "leashed/discipline/discipline.h"
#include "leashed/engine/trainer.h"

namespace leashed {
namespace {

// Batches of a run, of which a pass that is judged has some: it is judged when the one has been
// made in which it ends.
constexpr std::size_t kRunsOfPass = 8;
std::size_t run_of(const TrainOptions& options, std::size_t rows) {
  const std::size_t run = RunSampler::run_of(options.batch_size);
  if (!options.judges || rows == 0) return run;
  return std::min(
      run, std::bit_floor(std::max<std::size_t>(1, rows / options.batch_size / kRunsOfPass)));
}

}  // namespace

Training::Training(const GradientSource& source, const DatasetView& data, Discipline& discipline,
                   const TrainOptions& options)
    : Run(source, data, discipline, options.until, options.workers, options.batch_size,
          options.rows),
      discipline(discipline),
      batches(make_batches(data, batch_size, options.seed, options.stream,
                           options.recorded_passes > 0)),
      sparse_runs(data.sparse || options.stream ? discipline.sparse_runs() : nullptr),
      in_place(sparse_runs ? source.in_place() : nullptr),
      claim(sparse_runs ? run_of(options, data.rows) : 1),
      curvature(sparse_runs ? source.described().curvature * data.mean_weight() : 0),
      finds_losses(!sparse_runs || options.stream || options.recorded_passes > 0),
      from(options.from),
      end(sparse_runs ? from.batches + std::min(left(until.updates, from.updates),
                                                left(until.batches, from.batches))
                      : until.batches),
      feed(make_feed(*this, options.leases, options.stream != nullptr)),
      next_update(from.updates) {
  if (!finds_losses) counting.without_losses();
  if (options.recorded_passes > 0) {
    counting.keep_passes(*batches, from.batches, options.recorded_passes);
  }
  observe(options.metrics, options.observers);
  if (options.synchronisation) observers.add(*options.synchronisation);
}

}  // namespace leashed
