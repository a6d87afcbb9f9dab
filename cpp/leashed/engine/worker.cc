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
      current_(run.batch_size),
      next_(run.batch_size),
      telemetry_(std::make_unique<WorkerTelemetry>()) {}

void Worker::train() {
  const double start = now();
  try {
    look_ahead();
    while (run_.discipline.proceed(id_, wants_another())) step();
  } catch (...) {  // out of memory; never in lockstep, whose disciplines allocate nothing
    run_.fail(std::current_exception());
  }
  telemetry_->running_seconds = now() - start;
}

// Claims an update where updates are counted. A gradient that the persistence bound or the
// staleness policy dropped has used up its batch number but not its update.
bool Worker::wants_another() {
  if (run_.stop.stopped()) return false;
  if (run_.discipline.lockstep()) {
    if (run_.from.updates + steps_ >= run_.until.updates)
      return run_.stop.finish(StopReason::updates), false;
    if (!exists(run_.from.batches + steps_ * run_.workers)) {  // whole steps
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
  if (!exists(next_.k)) return run_.stop.finish(StopReason::epochs), false;
  return true;
}

void Worker::look_ahead() {
  const double start = now();
  next_.k = run_.discipline.lockstep() ? run_.from.batches + claims_++ * run_.workers + id_
                                       : run_.next_batch.fetch_add(1, std::memory_order_relaxed);
  run_.sampler.batch(next_.k, indices_.data());
  for (std::size_t i = 0; i < run_.batch_size; ++i) {
    next_.rows[i] = run_.data.x + indices_[i] * run_.data.features;
    next_.labels[i] = run_.data.labels[indices_[i]];
  }
  telemetry_->sampling_seconds += now() - start;
}

void Worker::step() {
  WorkerTelemetry& telemetry = *telemetry_;
  std::swap(current_, next_);
  look_ahead();
  const double sampled = now();
  const View view = run_.discipline.read(id_);
  const double read = now();
  telemetry.read_seconds += read - sampled;

  bool usable = false;
  try {
    const float loss = run_.source.gradient(
        view.theta,
        {current_.rows.data(), current_.labels.data(), run_.batch_size, next_.rows.data()},
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
    (publication.excluded ? telemetry.excluded : telemetry.dropped).add(1);
  }
}

}  // namespace leashed
