#include <algorithm>
#include <cmath>

#include "leashed/base/clock.h"
#include "leashed/engine/run.h"

namespace leashed {

Worker::Worker(Run& run, std::size_t id)
    : run_(run),
      id_(id),
      workspace_(run.source.make_workspace()),
      gradient_(run.in_place ? 0 : run.source.dimension()),
      telemetry_(std::make_unique<WorkerTelemetry>()) {}

void Worker::train() {
  const double start = now();
  try {
    const auto attached = run_.source.attach();
    look_ahead();
    while (run_.discipline.proceed(id_, wants_another())) {
      run_.in_place ? step_in_place() : step();
    }
    run_.discipline.leave(id_);
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
  if (!may_publish_ && !run_.in_place) {
    const std::uint64_t claimed = run_.next_update.fetch_add(1, std::memory_order_relaxed);
    if (claimed >= run_.until.updates) return run_.stop.finish(StopReason::updates), false;
    may_publish_ = true;
  }
  if (exists(next_.k)) return true;
  run_.stop.finish(run_.end < run_.until.batches ? StopReason::updates : StopReason::epochs);
  return false;
}

void Worker::look_ahead() {
  const double start = now();
  next_.k = run_.discipline.lockstep()
                ? run_.from.batches + claims_++ * run_.workers + id_
                : run_.next_batch.fetch_add(run_.claim, std::memory_order_relaxed);
  sample();
  telemetry_->sampling_seconds += now() - start;
}

void Worker::sample() {
  const DatasetView& data = run_.data;
  if (data.sparse) {
    const std::uint64_t end = std::min<std::uint64_t>(next_.k + run_.claim, run_.end);
    next_.k = std::max(next_.k, run_.from.batches);
    next_.batches = Run::left(end, next_.k);
    if (run_.in_place) return;
    const auto [first, count, batches] = run_.runs.rows(next_.k, 1);
    next_.view = {nullptr, data.targets.from(first), count, nullptr, data.sparse.from(first)};
    return;
  }
  indices_.resize(run_.batch_size);
  next_.rows.resize(run_.batch_size);
  run_.sampler.batch(next_.k, indices_.data());
  for (std::size_t i = 0; i < run_.batch_size; ++i) {
    next_.rows[i] = data.x + indices_[i] * data.features;
  }
  const auto gather = [&](const auto* from, auto& to) {
    to.resize(run_.batch_size);
    for (std::size_t i = 0; i < run_.batch_size; ++i) to[i] = from[indices_[i]];
    next_.view.targets = to.data();
  };
  if (data.targets.labels) {
    gather(data.targets.labels, next_.labels);
  } else {
    gather(data.targets.values, next_.values);
  }
  next_.view.rows = next_.rows.data();
  next_.view.size = run_.batch_size;
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
    current_.view.next_rows = next_.view.rows;
    const float loss = run_.source.gradient(view.theta, current_.view, gradient_.data(),
                                            *workspace_, run_.stop.flag());
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

float Worker::update(const InPlaceView& view) {
  float check = 0;
  for (std::uint64_t done = 0; done < current_.batches;) {
    const auto [first, count, batches] = run_.runs.rows(current_.k + done, current_.batches - done);
    const SparseUpdate update{view.theta, view.stride, run_.batch_size, *view.rule, view.t + done};
    check += run_.source.update(
        update,
        {nullptr, run_.data.targets.from(first), count, nullptr, run_.data.sparse.from(first)},
        *workspace_);
    done += batches;
  }
  return check;
}

RunEffect Worker::effect_with(const InPlaceView& view) const {
  RunEffect effect = view.effect;
  effect.whole = (current_.k + current_.batches) % run_.claim == 0;
  // With the learning rate at the run's first update, and the factors of its updates added one by
  // one, one thread's sum has the same bits wherever a checkpoint cuts the run in two.
  const std::uint64_t before = current_.k % run_.claim;
  const double rate = view.rule->coefficients({Run::left(view.t, before)}).lr;
  effect.contraction += static_cast<double>(current_.batches) * rate * run_.source.curvature();
  if (run_.source.l2() == 0) return effect;
  const double log_factor = std::log1p(-rate * run_.source.l2());
  for (std::uint64_t i = 0; i < current_.batches; ++i) effect.log_shrink += log_factor;
  return effect;
}

void Worker::step_in_place() {
  std::swap(current_, next_);
  look_ahead();
  const std::uint64_t updates = current_.batches;
  const double start = now();
  const InPlaceView view = run_.discipline.open(id_, updates);
  const double opened = now();
  try {
    if (!std::isfinite(update(view))) run_.stop.stop(StopReason::not_finite);
  } catch (...) {
    run_.fail(std::current_exception());
  }
  const double updated = now();
  const Publication publication = run_.discipline.close(id_, updates, effect_with(view));
  ++steps_;
  WorkerTelemetry& telemetry = *telemetry_;
  telemetry.gradients.add(updates);
  telemetry.read_seconds += opened - start - view.waiting_seconds;
  telemetry.waiting_seconds += view.waiting_seconds;
  const double each = 1.0 / static_cast<double>(updates);
  telemetry.gradient_seconds.add((updated - opened) * each, updates);
  telemetry.update_seconds.add(publication.update_seconds * each, updates);
  telemetry.tries.add(0, updates);
  telemetry.staleness.add(publication.staleness_compute, updates);
  telemetry.staleness_compute.add(publication.staleness_compute, updates);
  telemetry.staleness_schedule.add(0, updates);
}

}  // namespace leashed
