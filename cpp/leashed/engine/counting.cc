#include "leashed/engine/counting.h"

namespace leashed {
namespace {

// One of so many: most steps are of one batch, and a division takes as long as some of what is
// counted.
double each(double seconds, std::uint64_t count) {
  return count == 1 ? seconds : seconds / static_cast<double>(count);
}

}  // namespace

void Counting::keep_passes(const BatchSource& batches, std::uint64_t first_batch,
                           std::size_t passes) {
  batches_ = &batches;
  first_pass_ = batches.pass(first_batch);
  for (WorkerTelemetry& worker : workers_) worker.passes.resize(passes);
}

void Counting::claimed(const WorkerStep& step) {
  WorkerTelemetry& telemetry = of(step.worker);
  telemetry.sampling_seconds += step.seconds;
  if (step.streamed) telemetry.data_seconds += step.streamed->waited_seconds;
}

void Counting::used(const WorkerStep& step) {
  WorkerTelemetry& telemetry = of(step.worker);
  telemetry.gradients.add(step.count);
  telemetry.gradient_seconds.add(each(step.seconds, step.count), step.count);
  if (!finds_losses_) return;
  const std::size_t rows = step.batch->size;
  const double loss = step.loss_sum / static_cast<double>(rows);
  if (const StreamedRows* const streamed = step.streamed) {
    telemetry.stream_loss.add(step.first_row, streamed->pass_rows, loss, rows);
  } else {
    telemetry.loss.add(loss, loss_weight_);
  }
  if (telemetry.passes.empty()) return;
  const std::uint64_t pass = batches_->pass(step.k) - first_pass_;
  if (pass < telemetry.passes.size()) telemetry.passes[pass].add(step.loss_sum, rows);
}

void Counting::published(const WorkerStep& step, const Publication& what) {
  WorkerTelemetry& telemetry = of(step.worker);
  const std::uint64_t count = step.count;
  if (updates_ == Updates::by_disciplines) {
    const double seconds = each(what.update_seconds, count);
    const std::uint64_t attempts = what.tries + (what.published ? 1 : 0);
    telemetry.waiting_seconds += what.waiting_seconds;
    telemetry.update_seconds.add(seconds, count);
    if (attempts > 0) {
      telemetry.attempt_seconds.add(each(seconds, attempts), attempts * count);
    }
  }
  if (what.published || updates_ == Updates::by_disciplines) telemetry.tries.add(what.tries, count);
  if (what.published) {
    telemetry.staleness.add(what.staleness_compute + what.staleness_schedule, count);
    telemetry.staleness_compute.add(what.staleness_compute, count);
    telemetry.staleness_schedule.add(what.staleness_schedule, count);
  } else {
    (what.excluded ? telemetry.excluded : telemetry.dropped).add(1);
    telemetry.lost_to_synchronisation.add(what.lost_to_synchronisation);
  }
}

}  // namespace leashed
