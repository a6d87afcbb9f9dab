#include "leashed/engine/watched_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "leashed/engine/executor.h"
#include "leashed/engine/memory.h"

namespace leashed {

WatchedRun::WatchedRun(Run& run, const DatasetView* validation, Saver* saving,
                       const Monitor::Intervals& every, double initial_loss,
                       const TrainCallbacks& callbacks)
    : run_(run),
      evaluates_(std::isfinite(every.evaluate)),
      evaluator_(
          run.source, [this] { return keep_evaluating(); }, run.rows),
      history_(run, validation, evaluator_, clock_, initial_loss),
      monitor_(run, history_, saving, clock_, every, callbacks) {}

void WatchedRun::train(const std::function<std::unique_ptr<Executor>()>& executor) {
  begun_ = (!evaluates_ || monitor_.evaluate(run_.workers)) && !run_.stop.stopped();
  if (begun_) monitor_.look();  // Ctrl-C from here on keeps what it begins with
  if (!begun_ || run_.stop.stopped()) return;
  monitor_.weigh(false);
  clock_.start();
  monitor_.watch(*executor());
  clock_.stop();
}

TrainResult WatchedRun::end(const std::function<std::uint64_t(std::uint64_t t)>& used_batches) {
  if (run_.failure) std::rethrow_exception(run_.failure);

  const bool evaluated = begun_ && evaluates_ && monitor_.evaluate(run_.workers);
  if (evaluated && !run_.stop.gave(StopReason::patience)) monitor_.weigh(false);
  history_.refine(run_.workers);
  const bool crashed = monitor_.crashed() || run_.stop.gave(StopReason::not_finite);
  if (begun_ && !crashed) monitor_.save();
  monitor_.look();  // Ctrl-C while it was written, too
  TrainResult result;
  run_.observed.with_snapshot([&](const float* theta, std::uint64_t t) {
    result.parameters.assign(theta, theta + run_.source.dimension());
    result.updates = t;
  });
  const Ending ending{monitor_.converged(),  crashed,        monitor_.interrupted(),
                      history_.loss_share(), result.updates, used_batches(result.updates)};
  result.reason = reason_of(ending, run_.stop, run_.until);
  result.outcome = outcome_of(ending, result.reason, run_.until);
  result.evaluations = history_.evaluations();
  if (result.evaluations.empty()) result.evaluations.push_back(nothing_evaluated());
  result.elapsed = clock_.seconds();
  if (run_.metrics) {
    run_.metrics->take(result.elapsed, result.updates);
    result.scored = run_.metrics->windows();
  }
  for (const WorkerTelemetry* worker : run_.counting.all()) result.add(*worker);
  result.observed = run_.observers.found();
  result.peak_vectors = run_.observed.peak_vectors() + run_.workers;
  // The system brings its peak up to date later than what is resident now.
  result.peak_memory_bytes = history_.without_copies(peak_resident_bytes());
  for (const Evaluated& e : result.evaluations) {
    result.peak_memory_bytes = std::max(result.peak_memory_bytes, e.memory_bytes);
  }
  return result;
}

}  // namespace leashed
