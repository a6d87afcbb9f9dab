#include "leashed/engine/result.h"

#include <limits>

namespace leashed {
namespace {

// A run that asked for a loss and ended above this share of the initial one has got nowhere.
constexpr double kDiverged = 0.95;

}  // namespace

void TrainResult::add(const WorkerTelemetry& worker) {
  passes.resize(worker.passes.size());
  for (std::size_t pass = 0; pass < passes.size(); ++pass) {
    passes[pass].add(worker.passes[pass].sum, worker.passes[pass].rows);
  }
  gradients += worker.gradients.get();
  dropped += worker.dropped.get();
  excluded += worker.excluded.get();
  lost_to_synchronisation += worker.lost_to_synchronisation.get();
  worker.staleness.merge_into(staleness);
  worker.staleness_compute.merge_into(staleness_compute);
  worker.staleness_schedule.merge_into(staleness_schedule);
  worker.tries.merge_into(tries);
  worker.gradient_seconds.merge_into(gradient_seconds);
  worker.update_seconds.merge_into(update_seconds);
  worker.attempt_seconds.merge_into(attempt_seconds);
  worker_updates.push_back(worker.gradients.get() - worker.dropped.get() - worker.excluded.get());
  read_seconds += worker.read_seconds;
  sampling_seconds += worker.sampling_seconds;
  waiting_seconds += worker.waiting_seconds;
  data_seconds += worker.data_seconds;
  running_seconds += worker.running_seconds;
  rows.add(worker.rows);
  row_seconds += worker.row_seconds;
}

Evaluated nothing_evaluated() {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  return {0, 0, kNone, kNone, 0, kNone, 0, 0, 0, {}, {}};
}

// Where a training was cut short after the last update or batch had been claimed, it did not end by
// their number.
StopReason reason_of(const Ending& ending, const StopFlag& stop, const StopRules& until) {
  if (ending.crashed) return StopReason::not_finite;
  if (ending.interrupted) return StopReason::interrupted;
  const StopReason first = stop.reason(), cut = stop.cut();
  if (first == StopReason::updates && ending.updates < until.updates) {
    return cut == StopReason::none ? StopReason::epochs : cut;  // none: no batch was left for it
  }
  const bool unused = first == StopReason::epochs && ending.batches < until.batches;
  return unused && cut != StopReason::none ? cut : first;
}

std::string outcome_of(const Ending& ending, StopReason reason, const StopRules& until) {
  if (ending.crashed) return "crashed";
  if (ending.converged) return "converged";
  if (ending.interrupted) return "stopped";
  if (reason == StopReason::divergence) return "diverged";
  if (!until.wants_loss()) return "stopped";
  return ending.loss_share < kDiverged ? "unfinished" : "diverged";
}

}  // namespace leashed
