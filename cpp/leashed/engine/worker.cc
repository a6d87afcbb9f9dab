#include <cmath>

#include "leashed/base/clock.h"
#include "leashed/engine/run.h"

namespace leashed {

Worker::Worker(Run& run, std::size_t id)
    : run_(run),
      id_(id),
      workspace_(run.source.make_workspace()),
      gradient_(run.source.dimension()),
      indices_(run.batch_size),
      rows_(run.batch_size),
      labels_(run.batch_size),
      telemetry_(std::make_unique<WorkerTelemetry>()) {}

void Worker::train() {
  const double start = now();
  try {
    while (run_.discipline.proceed(id_, wants_another())) step();
  } catch (...) {  // out of memory; never in lockstep, whose disciplines allocate nothing
    run_.fail(std::current_exception());
  }
  telemetry_->running_seconds = now() - start;
}

// Claims a batch number and, where updates are counted, an update. A gradient that the persistence
// bound dropped has used up its batch number but not its update.
bool Worker::wants_another() {
  if (run_.stop.stopped()) return false;
  if (run_.discipline.lockstep()) {
    if (steps_ >= run_.until.updates) return run_.stop.finish(StopReason::updates), false;
    k_ = steps_ * run_.workers + id_;
    if (steps_ * run_.workers >= run_.until.batches) {  // whole steps
      return run_.stop.finish(StopReason::epochs), false;
    }
    return true;
  }
  if (!may_publish_) {
    if (run_.next_update.fetch_add(1, std::memory_order_relaxed) >= run_.until.updates) {
      return run_.stop.finish(StopReason::updates), false;
    }
    may_publish_ = true;
  }
  k_ = run_.next_batch.fetch_add(1, std::memory_order_relaxed);
  if (k_ >= run_.until.batches) return run_.stop.finish(StopReason::epochs), false;
  return true;
}

void Worker::step() {
  WorkerTelemetry& telemetry = *telemetry_;
  const double start = now();
  run_.sampler.batch(k_, indices_.data());
  for (std::size_t i = 0; i < run_.batch_size; ++i) {
    rows_[i] = run_.data.x + indices_[i] * run_.data.features;
    labels_[i] = run_.data.labels[indices_[i]];
  }
  const double sampled = now();
  const View view = run_.discipline.read(id_);
  const double read = now();
  telemetry.sampling_seconds += sampled - start;
  telemetry.read_seconds += read - sampled;

  bool usable = false;
  try {
    const float loss =
        run_.source.gradient(view.theta, {rows_.data(), labels_.data(), run_.batch_size},
                             gradient_.data(), *workspace_, run_.stop.flag());
    usable = !run_.stop.stopped();
    if (usable && !std::isfinite(loss)) {
      run_.stop.stop(StopReason::not_finite);
      usable = false;
    }
  } catch (...) {
    run_.fail(std::current_exception());
  }
  if (!usable) return run_.discipline.withdraw(id_);
  const double computed = now();

  const Publication publication = run_.discipline.publish(id_, gradient_.data());
  if (publication.abandoned) return;
  ++steps_;
  telemetry.gradients.add(1);
  telemetry.gradient_seconds.add(computed - read);
  telemetry.waiting_seconds += publication.waiting_seconds;
  telemetry.update_seconds.add(publication.update_seconds);
  telemetry.tries.add(publication.tries);
  if (publication.published) {
    may_publish_ = false;
    telemetry.staleness.add(publication.staleness_compute + publication.staleness_schedule);
    telemetry.staleness_compute.add(publication.staleness_compute);
    telemetry.staleness_schedule.add(publication.staleness_schedule);
  } else {
    telemetry.dropped.add(1);
  }
}

}  // namespace leashed
