#include "leashed/engine/worker.h"

#include <algorithm>
#include <cmath>

#include "leashed/base/clock.h"
#include "leashed/base/fault.h"
#include "leashed/base/relaxed.h"  // of claims: training.h says why
#include "leashed/discipline/discipline.h"
#include "leashed/update/rule.h"

namespace leashed {
namespace {

constexpr double kPatience = 0.02;  // seconds of waiting for a lease between two looks

}  // namespace

Worker::Worker(Training& training, std::size_t id, std::size_t recorded_passes)
    : training_(training),
      id_(id),
      first_pass_(training.batches->pass(training.from.batches)),
      workspace_(training.source.make_workspace()),
      gradient_(training.sparse_runs ? 0 : training.source.dimension()),
      telemetry_(std::make_unique<WorkerTelemetry>()) {
  telemetry_->passes.resize(recorded_passes);
  if (!training_.rows) return;
  current_.rows = training_.rows->make_batch();
  next_.rows = training_.rows->make_batch();
}

bool Worker::train(double until) {
  const double start = now();
  bool more = false;
  try {
    const auto attached = training_.source.attach();
    if (!begun_) look_ahead();
    begun_ = true;
    while (!more && training_.discipline.proceed(id_, wants_another())) {
      training_.sparse_runs ? step_sparse() : step();
      more = looked_ahead_ >= until;
    }
    if (!more && training_.sparse_runs) training_.sparse_runs->leave(id_);
  } catch (...) {  // out of memory
    training_.fail(std::current_exception());
    more = false;
  }
  if (!more && training_.rows) training_.rows->leave(id_);
  if (!more && training_.synchronisation) training_.synchronisation->leave(id_);
  if (!more) training_.discipline.leave(id_);
  if (!more && training_.pause) training_.pause->leave();
  telemetry_->running_seconds += now() - start;
  return more;
}

// Waits until it is known, where batches are leased.
bool Worker::exists(std::uint64_t place) {
  if (!training_.leases) return place < training_.end && training_.batches->has(place);
  if (place >= training_.end) return false;
  std::uint64_t k = 0;
  return wait([&](double seconds) {
           return training_.leases->claim(place - training_.from.batches, seconds, k);
         }) == Leases::Claim::given;
}

// Until a lease says so, or the run is stopped.
template <class Ask>
Leases::Claim Worker::wait(const Ask& ask) {
  Leases::Claim claim = ask(0);
  if (claim != Leases::Claim::waiting) return claim;
  const double start = now();
  Synchronisation* const others = training_.synchronisation;
  while (claim == Leases::Claim::waiting && !training_.stop.stopped()) {
    if (others) others->waiting(id_);
    claim = ask(kPatience);
  }
  if (others) others->resumed(id_);
  telemetry_->waiting_seconds += now() - start;
  return claim;
}

Leases::Claim Worker::learn(double seconds) {
  const auto claim = training_.discipline.lockstep() ? &Leases::claim_beyond : &Leases::claim;
  const Leases::Claim claimed =
      (training_.leases->*claim)(next_.place - training_.from.batches, seconds, next_.k);
  next_.waiting = claimed == Leases::Claim::waiting;
  if (claimed == Leases::Claim::given) fill(next_);
  return claimed;
}

bool Worker::have_batch() {
  if (next_.waiting) wait([this](double seconds) { return learn(seconds); });
  return !training_.stop.stopped();
}

// Claims an update where updates are counted. A gradient that the persistence bound or the
// staleness policy dropped has used up its batch number but not its update.
bool Worker::wants_another() {
  if (training_.stop.stopped()) return false;
  if (training_.discipline.lockstep()) {
    const std::uint64_t update = training_.from.updates + steps_;
    if (update >= training_.until.updates) return training_.stop.finish(StopReason::updates), false;
    const std::uint64_t first = training_.from.batches + steps_ * training_.workers;
    if (!exists(first) || !training_.batches->has(first + training_.workers - 1)) {  // whole steps
      return training_.stop.finish(StopReason::epochs), false;
    }
    if (training_.pause) pause(steps_ > 0 && training_.pause->due(update));
    return have_batch();
  }
  const std::uint64_t most = training_.until.updates;
  bool due = false;
  if (training_.streams_runs ? next_.count == 0 : !exists(next_.place)) {
    if (training_.stop.stopped()) return false;
    // Then no update is claimed that another worker has a batch for.
    const bool updates = training_.sparse_runs
                             ? training_.end < training_.until.batches && next_.k >= training_.end
                             : !may_publish_ && training_.next_update.load(kRelaxed) >= most;
    return training_.stop.finish(updates ? StopReason::updates : StopReason::epochs), false;
  }
  if (!may_publish_ && !training_.sparse_runs) {
    const std::uint64_t update = training_.next_update.fetch_add(1, kRelaxed);
    if (update >= most) return training_.stop.finish(StopReason::updates), false;
    may_publish_ = true;
    due = training_.pause && update > training_.from.updates && training_.pause->due(update);
  }
  if (training_.sparse_runs && training_.pause) {
    due =
        next_.place > training_.from.batches && training_.pause->due(next_.place, training_.claim);
  }
  if (training_.pause) pause(due);
  return have_batch();
}

void Worker::pause(bool due) {
  telemetry_->waiting_seconds += training_.pause->pass(due, training_.stop);
}

void Worker::look_ahead() {
  const double start = now();
  fault_point("sample");
  if (training_.discipline.lockstep()) {
    next_.place = training_.from.batches + claims_++ * training_.workers + id_;
  } else {
    next_.place = training_.next_batch.fetch_add(training_.claim, kRelaxed);
  }
  next_.k = next_.place;
  if (training_.leases) {
    learn(0);
  } else if (training_.sparse_runs) {
    const std::uint64_t end = std::min<std::uint64_t>(next_.k + training_.claim, training_.end);
    next_.k = std::max(next_.k, training_.from.batches);
    next_.count = Training::left(end, next_.k);
    // Rows behind the run's end are not waited for.
    if (training_.streams_runs && next_.count > 0) fill_run(next_);
  } else {
    fill(next_);
  }
  looked_ahead_ = now();
  telemetry_->sampling_seconds += looked_ahead_ - start;
}

void Worker::fill(Claim& claim) {
  training_.batches->fill(claim.k, claim.batch);
  if (claim.batch.streamed) telemetry_->data_seconds += claim.batch.streamed->waited_seconds;
  claim.located = false;
  // An id that no batch trains on is not to get a row, nor to be counted.
  if (training_.rows && claim.batch.view.size > 0 && !beyond_end(claim.place)) locate(claim);
}

void Worker::fill_run(Claim& claim) {
  const std::size_t size = training_.batch_size;
  training_.batches->fill_span(claim.k * size, claim.count * size, claim.batch);
  telemetry_->data_seconds += claim.batch.streamed->waited_seconds;
  claim.count = (claim.batch.view.size + training_.batch_size - 1) / training_.batch_size;
}

void Worker::locate(Claim& claim) {
  training_.rows->prefetch(id_, claim.batch.view, *claim.rows);
  claim.located = true;
}

bool Worker::beyond_end(std::uint64_t place) const {
  const Position& from = training_.from;
  if (training_.discipline.lockstep()) {  // whole steps
    const std::uint64_t steps = (place - from.batches) / training_.workers;
    return from.updates + steps >= training_.until.updates ||
           from.batches + steps * training_.workers >= training_.end;
  }
  return place >= training_.end || training_.next_update.load(kRelaxed) >= training_.until.updates;
}

// Also where theta's part was dropped or excluded: each row decides for itself.
void Worker::push_rows(const Publication& publication, std::uint64_t read) {
  if (publication.abandoned) return training_.rows->drop(id_, *current_.rows);
  const double begin = now();
  const RowStep step{publication.published ? publication.t : read};
  telemetry_->rows.add(training_.rows->push(id_, *current_.rows, step));
  telemetry_->row_seconds += now() - begin;
}

void Worker::record(std::uint64_t k, double loss_sum, std::size_t rows) {
  std::vector<PassLoss>& passes = telemetry_->passes;
  if (passes.empty()) return;
  const std::uint64_t pass = training_.batches->pass(k) - first_pass_;
  if (pass < passes.size()) passes[pass].add(loss_sum, rows);
}

void Worker::step() {
  WorkerTelemetry& telemetry = *telemetry_;
  std::swap(current_, next_);
  if (training_.rows && !current_.located) locate(current_);
  look_ahead();
  const View view = training_.discipline.read(id_);

  bool usable = false;
  float loss = 0;
  double read = looked_ahead_;
  try {
    BatchView& batch = current_.batch.view;
    if (training_.rows) training_.rows->pull(id_, batch, *current_.rows);
    read = now();
    telemetry.read_seconds += read - looked_ahead_;
    // As many as this batch has are fetched, which not every batch after it has.
    const bool follow = !next_.waiting && next_.batch.view.size >= batch.size;
    batch.next_rows = follow ? next_.batch.view.rows : nullptr;
    if (training_.metrics) batch.logits = training_.metrics->logits(id_, batch.size);
    loss = training_.source.gradient(view.theta, batch, gradient_.data(), *workspace_,
                                     training_.stop.flag());
    usable = !training_.stop.stopped();
    if (usable && !std::isfinite(loss)) {
      training_.stop.stop(StopReason::not_finite);
      usable = false;
    }
  } catch (...) {
    training_.fail(std::current_exception());
  }
  if (!usable) {
    if (training_.rows) training_.rows->drop(id_, *current_.rows);
    if (training_.trace) training_.trace->add(id_, current_.k, view.t, {.abandoned = true});
    return training_.discipline.withdraw(id_);
  }
  const double computed = now();

  const std::size_t rows = current_.batch.view.size;
  record(current_.k, double{loss} * static_cast<double>(rows), rows);
  const Publication publication = training_.discipline.publish(id_, gradient_.data());
  if (training_.trace) training_.trace->add(id_, current_.k, view.t, publication);
  if (training_.rows) push_rows(publication, view.t);
  if (publication.abandoned) return;
  if (training_.metrics) training_.metrics->add(id_, current_.batch.view);
  ++steps_;
  if (training_.leases) training_.leases->use(current_.place - training_.from.batches);
  telemetry.gradients.add(1);
  telemetry.gradient_seconds.add(computed - read);
  telemetry.waiting_seconds += publication.waiting_seconds;
  telemetry.update_seconds.add(publication.update_seconds);
  const std::uint64_t attempts = publication.tries + (publication.published ? 1 : 0);
  if (attempts > 0) {
    telemetry.attempt_seconds.add(publication.update_seconds / static_cast<double>(attempts),
                                  attempts);
  }
  telemetry.tries.add(publication.tries);
  telemetry.found(current_.batch, loss, training_.loss_weight);
  if (publication.published) {
    may_publish_ = false;
    telemetry.staleness.add(publication.staleness_compute + publication.staleness_schedule);
    telemetry.staleness_compute.add(publication.staleness_compute);
    telemetry.staleness_schedule.add(publication.staleness_schedule);
  } else {
    (publication.excluded ? telemetry.excluded : telemetry.dropped).add(1);
    telemetry.lost_to_synchronisation.add(publication.lost_to_synchronisation);
  }
  if (training_.synchronisation) training_.synchronisation->stepped(id_);
}

float Worker::update(const InPlaceView& view) {
  if (training_.streams_runs) return update_streamed(view);
  float check = 0;
  for (std::uint64_t done = 0; done < current_.count;) {
    std::size_t batches = 0;
    const BatchView batch =
        training_.run_batches->follow(current_.k + done, current_.count - done, batches);
    check += update(view, batch, done);
    done += batches;
  }
  return check;
}

// In up to three parts where a pass ends within the run, so that what each finds is the loss of one
// pass: the batches before its end, the one that the end lies in, and those behind it.
float Worker::update_streamed(const InPlaceView& view) {
  const StreamedRows& streamed = *current_.batch.streamed;
  const BatchView& run = current_.batch.view;
  const std::size_t size = training_.batch_size;
  float check = 0;
  for (std::size_t done = 0; done < run.size;) {
    std::size_t rows = run.size - done;
    if (const std::uint64_t pass = streamed.pass_rows) {
      const std::uint64_t left = pass - (streamed.first + done) % pass;
      if (left < rows) rows = std::min<std::uint64_t>(rows, std::max(left / size * size, size));
    }
    const BatchView part{nullptr, run.targets.from(done), rows, nullptr, run.sparse.from(done)};
    check += update(view, part, done / size);
    done += rows;
  }
  return check;
}

float Worker::update(const InPlaceView& view, BatchView batches, std::uint64_t done) {
  const bool wants_loss = training_.streams_runs || !telemetry_->passes.empty();
  double loss = 0;
  const SparseUpdate update{view.theta, view.stride,   training_.batch_size,
                            *view.rule, view.t + done, wants_loss ? &loss : nullptr};
  if (training_.metrics) batches.logits = training_.metrics->logits(id_, batches.size);
  const float found = training_.source.update(update, batches, *workspace_);
  if (training_.metrics && std::isfinite(found)) training_.metrics->add(id_, batches);
  record(current_.k + done, loss, batches.size);
  if (training_.streams_runs) {
    const StreamedRows& streamed = *current_.batch.streamed;
    telemetry_->stream_loss.add(streamed.first + done * training_.batch_size, streamed.pass_rows,
                                loss / static_cast<double>(batches.size), batches.size);
  }
  return found;
}

RunEffect Worker::effect_with(const InPlaceView& view) const {
  const std::uint64_t before = current_.k % training_.claim;
  const double lr = view.rule->coefficients({Training::left(view.t, before)}).lr;
  RunEffect effect =
      view.effect.with(current_.count, lr, training_.curvature, training_.source.l2());
  effect.whole = (current_.k + current_.count) % training_.claim == 0;
  return effect;
}

void Worker::step_sparse() {
  std::swap(current_, next_);
  look_ahead();
  const double start = looked_ahead_;
  const std::uint64_t updates = current_.count;
  const InPlaceView view = training_.sparse_runs->open(id_, updates);
  const double opened = now();
  try {
    if (!std::isfinite(update(view))) training_.stop.stop(StopReason::not_finite);
  } catch (...) {
    training_.fail(std::current_exception());
  }
  const double updated = now();
  const ClosedRun closed = training_.sparse_runs->close(id_, updates, effect_with(view));
  ++steps_;
  WorkerTelemetry& telemetry = *telemetry_;
  telemetry.gradients.add(updates);
  telemetry.read_seconds += opened - start - view.waiting_seconds;
  telemetry.waiting_seconds += view.waiting_seconds;
  const double each = 1.0 / static_cast<double>(updates);
  telemetry.gradient_seconds.add((updated - opened) * each, updates);
  telemetry.update_seconds.add(closed.update_seconds * each, updates);
  telemetry.attempt_seconds.add(closed.update_seconds * each, updates);
  telemetry.tries.add(0, updates);
  telemetry.staleness.add(closed.staleness, updates);
  telemetry.staleness_compute.add(closed.staleness, updates);
  telemetry.staleness_schedule.add(0, updates);
}

}  // namespace leashed
