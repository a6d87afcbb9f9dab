#include "leashed/engine/trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "leashed/discipline/updater.h"
#include "leashed/engine/memory.h"

namespace leashed {
namespace {

std::vector<Worker> workers_of(Training& training, std::size_t recorded_passes) {
  std::vector<Worker> workers;
  workers.reserve(training.workers);
  for (std::size_t id = 0; id < training.workers; ++id) {
    workers.emplace_back(training, id, recorded_passes);
  }
  return workers;
}

// From its beginning, before the workers', to after their end.
class InSync {
 public:
  InSync(Training& training, const std::function<bool()>& go_on)
      : training_(training), synchronisation_(training.synchronisation) {
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
                       std::isfinite(options.checkpoint_every) ||
                       std::isfinite(training.until.seconds) || training.until.wants_loss() ||
                       training.leases || training.synchronisation;
  const bool is_short =
      training.batch_size <= kShortStep / std::max<std::size_t>(1, training.source.dimension());
  if (workers.size() == 1 && !watches && is_short) {
    return std::make_unique<CallerExecutor>(training, workers.front());
  }
  return std::make_unique<ThreadExecutor>(training, workers);
}

}  // namespace

TrainResult train(const GradientSource& source, const DatasetView& data,
                  const DatasetView* validation, Discipline& discipline,
                  const DisciplineContext& context, const TrainOptions& options,
                  const TrainCallbacks& callbacks) {
  Training training(source, data, discipline, options.until, options.workers, options.batch_size,
                    options.seed, options.from, options.rows, options.leases,
                    options.synchronisation, options.trace);
  std::vector<Worker> workers = workers_of(training, options.recorded_passes);
  Stopwatch clock;
  Monitor* watching = nullptr;
  Evaluator evaluator(
      source, [&watching] { return watching->keep_evaluating(); }, options.rows);
  History history(training, workers, validation, evaluator, clock, options.initial_loss);
  Saving saving(training, workers, Updater(context).layout(), &context.staleness);
  Monitor monitor(training, history, saving, clock,
                  {options.evaluate_every, options.checkpoint_every}, callbacks);
  watching = &monitor;

  InSync in_sync(training, [&monitor] { return monitor.keep_evaluating(); });
  const bool evaluates = std::isfinite(options.evaluate_every);
  const bool begun = (!evaluates || monitor.evaluate(options.workers)) && !training.stop.stopped();
  if (begun) {
    clock.start();
    const auto executor = executor_of(training, workers, options);
    monitor.watch(*executor);
    clock.stop();
  }
  in_sync.end();
  if (training.failure) std::rethrow_exception(training.failure);

  if (begun && evaluates) monitor.evaluate(options.workers);
  history.refine(options.workers);
  monitor.look();
  TrainResult result;
  discipline.with_snapshot([&](const float* theta, std::uint64_t t) {
    result.parameters.assign(theta, theta + source.dimension());
    result.updates = t;
  });
  const Ending ending{
      monitor.converged(),   monitor.crashed() || training.stop.gave(StopReason::not_finite),
      monitor.interrupted(), history.loss_share(),
      result.updates,        saving.used_batches(result.updates)};
  if (begun && !ending.crashed) monitor.save();
  result.reason = reason_of(ending, training.stop, training.until);
  result.outcome = outcome_of(ending, result.reason, training.until);
  result.sparse_runs = training.sparse_runs != nullptr;
  result.evaluations = history.evaluations();
  if (result.evaluations.empty()) result.evaluations.push_back(nothing_evaluated());
  result.elapsed = clock.seconds();
  for (const Worker& worker : workers) result.add(worker.telemetry());
  result.peak_vectors = discipline.peak_vectors() + workers.size();
  // The system brings its peak up to date later than what is resident now.
  result.peak_memory_bytes = history.without_copies(peak_resident_bytes());
  for (const Evaluated& e : result.evaluations) {
    result.peak_memory_bytes = std::max(result.peak_memory_bytes, e.memory_bytes);
  }
  return result;
}

}  // namespace leashed
