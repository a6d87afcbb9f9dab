#include "leashed/engine/trainer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "leashed/data/reading.h"
#include "leashed/discipline/discipline.h"
#include "leashed/discipline/updater.h"
#include "leashed/engine/executor.h"
#include "leashed/engine/saving.h"
#include "leashed/engine/watched_run.h"
#include "leashed/engine/worker.h"

namespace leashed {
namespace {

std::vector<Worker> workers_of(Training& training) {
  std::vector<Worker> workers;
  workers.reserve(training.workers);
  for (std::size_t id = 0; id < training.workers; ++id) {
    workers.emplace_back(training, id);
  }
  return workers;
}

// From its beginning, before the workers', to after their end.
class InSync {
 public:
  InSync(Training& training, Synchronisation* synchronisation, const std::function<bool()>& go_on)
      : training_(training), synchronisation_(synchronisation) {
    if (!synchronisation_) return;
    try {
      synchronisation_->begin(
          {training.discipline, training.workers, training.source.dimension(), training.stop.flag(),
           [&training](std::exception_ptr error) { training.fail(error); }},
          go_on);
    } catch (...) {
      end();
      throw;
    }
  }
  // By an exception: then nobody is waited for.
  ~InSync() {
    if (synchronisation_) training_.stop.stop(StopReason::error);
    end();
  }
  InSync(const InSync&) = delete;
  void end() {
    if (synchronisation_) std::exchange(synchronisation_, nullptr)->end();
  }

 private:
  Training& training_;
  Synchronisation* synchronisation_;
};

// Products of a batch with dense layers, at most, for a step that is short: some milliseconds.
constexpr std::size_t kShortStep = std::size_t{1} << 20;

std::unique_ptr<Executor> executor_of(Training& training, std::vector<Worker>& workers,
                                      const TrainOptions& options) {
  const bool watches = std::isfinite(options.evaluate_every) ||
                       std::isfinite(options.checkpoint_every) || training.pause ||
                       std::isfinite(training.until.seconds) || training.until.wants_loss() ||
                       options.leases || options.synchronisation || options.stream ||
                       (training.rows && training.rows->waits());
  const bool is_short =
      training.batch_size <= kShortStep / std::max<std::size_t>(1, training.source.dimension());
  if (workers.size() == 1 && !watches && is_short) {
    return std::make_unique<CallerExecutor>(training, workers.front());
  }
  return std::make_unique<ThreadExecutor>(training, [&](std::size_t id) { workers[id].train(); });
}

}  // namespace

TrainResult train(const GradientSource& source, const DatasetView& data,
                  const DatasetView* validation, Discipline& discipline,
                  const DisciplineContext& context, const TrainOptions& options,
                  const TrainCallbacks& callbacks) {
  Training training(source, data, discipline, options);
  std::optional<Pause> pause;
  if (options.pause_every > 0 || options.judges) {
    training.pause = &pause.emplace(options.workers, options.pause_every, options.judges);
  }
  std::vector<Worker> workers = workers_of(training);
  Saving saving(training, Updater(context).layout(), &context.staleness);
  WatchedRun watched(training, validation, &saving,
                     {options.evaluate_every, options.checkpoint_every}, options.initial_loss,
                     callbacks);

  if (const StreamedData* const streamed = options.stream) {
    training.stop.on_stop([streamed] { streamed->stream->stop(); });
  }
  const Reading reading(options.stream, training.from.batches * training.batch_size);
  InSync in_sync(training, options.synchronisation,
                 [&watched] { return watched.keep_evaluating(); });
  watched.train([&] { return executor_of(training, workers, options); });
  in_sync.end();
  TrainResult result = watched.end([&](std::uint64_t t) { return saving.used_batches(t); });
  result.sparse_runs = training.sparse_runs != nullptr;
  return result;
}

}  // namespace leashed
