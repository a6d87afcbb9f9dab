#include "leashed/engine/worker.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "leashed/base/clock.h"
#include "leashed/base/fault.h"
#include "leashed/base/relaxed.h"  // of claims: training.h says why
#include "leashed/discipline/discipline.h"
#include "leashed/engine/step.h"

namespace leashed {
namespace {

constexpr double kPatience = 0.02;  // seconds of waiting for a batch between two looks

}  // namespace

Worker::Worker(Training& training, std::size_t id)
    : training_(training),
      id_(id),
      workspace_(training.source.make_workspace()),
      gradient_(training.source.dimension() * (!training.sparse_runs                 ? 1
                                               : training.observers.need_gradients() ? 2
                                                                                     : 0)),
      ahead_(training.rows ? training.rows->ahead() : 1),
      telemetry_(training.counting.of(id)) {
  if (!training_.rows) return;
  current_.rows = training_.rows->make_batch();
  for (Claimed& each : ahead_) each.rows = training_.rows->make_batch();
}

bool Worker::train(double until) {
  const double start = now();
  bool more = false;
  try {
    const auto attached = training_.source.attach();
    for (std::size_t i = 0; !begun_ && i < ahead_.size(); ++i) look_ahead(ahead_[i]);
    begun_ = true;
    while (!more && training_.discipline.proceed(id_, wants_another())) {
      training_.sparse_runs ? step_in_place() : step();
      more = looked_ahead_ >= until;
    }
    if (!more && training_.sparse_runs) training_.sparse_runs->leave(id_);
  } catch (...) {  // out of memory
    training_.fail(std::current_exception());
    more = false;
  }
  if (!more && training_.rows) telemetry_.rows.add(training_.rows->leave(id_));
  if (!more) training_.leave(id_);
  if (!more) training_.discipline.leave(id_);
  if (!more && training_.pause) training_.pause->leave();
  telemetry_.running_seconds += now() - start;
  return more;
}

template <class Ask>
Feed::Given Worker::wait(const Ask& ask) {
  Feed::Given given = ask(0);
  if (given != Feed::Given::waiting) return given;
  const double start = now();
  while (given == Feed::Given::waiting && !training_.stop.stopped()) {
    if (training_.rows) training_.rows->settle(id_);
    training_.observers.waiting(id_);
    given = ask(kPatience);
  }
  training_.observers.resumed(id_);
  telemetry_.waiting_seconds += now() - start;
  return given;
}

bool Worker::exist(std::uint64_t place, std::uint64_t count) {
  return place < training_.end && wait([&](double seconds) {
                                    return training_.feed->has(place, count, seconds);
                                  }) == Feed::Given::given;
}

// Claims an update where updates are counted. A gradient that the persistence bound or the
// staleness policy dropped has used up its batch number but not its update.
bool Worker::wants_another() {
  if (training_.stop.stopped()) return false;
  Pause* const pause = training_.pause;
  if (training_.discipline.lockstep()) {  // whole steps
    const std::uint64_t update = training_.from.updates + steps_;
    if (update >= training_.until.updates) return training_.stop.finish(StopReason::updates), false;
    if (!exist(training_.from.batches + steps_ * training_.workers, training_.workers)) {
      return training_.stop.finish(StopReason::epochs), false;
    }
    return have_batch(pause && steps_ > 0 && pause->due(update));
  }
  const std::uint64_t most = training_.until.updates;
  if (!exist(next().place, next().count)) {
    if (training_.stop.stopped()) return false;
    // Then no update is claimed that another worker has a batch for.
    const bool updates = training_.sparse_runs
                             ? training_.end < training_.until.batches && next().k >= training_.end
                             : !may_publish_ && training_.next_update.load(kRelaxed) >= most;
    return training_.stop.finish(updates ? StopReason::updates : StopReason::epochs), false;
  }
  if (training_.sparse_runs) {
    return have_batch(pause && next().place > training_.from.batches &&
                      pause->due(next().place, training_.claim));
  }
  if (may_publish_) return have_batch(false);
  const std::uint64_t update = training_.next_update.fetch_add(1, kRelaxed);
  if (update >= most) return training_.stop.finish(StopReason::updates), false;
  may_publish_ = true;
  return have_batch(pause && update > training_.from.updates && pause->due(update));
}

bool Worker::have_batch(bool due) {
  if (Pause* const pause = training_.pause) {
    if (due) pause->ask();
    telemetry_.waiting_seconds += pause->pass(training_.stop);
  }
  if (next().waiting &&
      wait([this](double seconds) { return learn(next(), seconds); }) == Feed::Given::none) {
    return training_.stop.finish(StopReason::epochs), false;
  }
  if (training_.pause && training_.pause->judges() && !training_.stop.stopped()) {
    telemetry_.waiting_seconds += training_.pause->pass(training_.stop, next_pass());
  }
  return !training_.stop.stopped();
}

// That the next batch is of, of all that take a step together the first one's. (How long passes of
// a stream are is known where a row of the second has come.)
std::uint64_t Worker::next_pass() const {
  const std::uint64_t begun = training_.from.batches;
  const bool together = training_.discipline.lockstep();
  const std::uint64_t pass =
      training_.batches->pass(together ? begun + steps_ * training_.workers : next().k);
  return pass == 0 ? 0 : pass - training_.batches->pass(begun);
}

Worker::Claimed& Worker::go_on() {
  Claimed& last = next();
  std::swap(current_, last);
  first_ = (first_ + 1) % ahead_.size();
  return last;
}

void Worker::look_ahead(Claimed& last) {
  fault_point("sample");
  last.place = training_.feed->place(id_, claims_++);
  last.waiting = true;
  for (std::size_t i = 0; i < ahead_.size(); ++i) {  // in their order
    Claimed& each = ahead_[(first_ + i) % ahead_.size()];
    if (each.waiting) learn(each, 0);
  }
}

Feed::Given Worker::learn(Claimed& claim, double seconds) {
  const double start = now();
  const Feed::Given given = training_.feed->fill(claim, seconds);
  claim.waiting = given == Feed::Given::waiting;
  claim.located = false;
  // An id that no batch trains on is not to get a row, nor to be counted.
  const bool filled = given == Feed::Given::given;
  const bool reads_rows = filled && training_.rows && claim.batch.view.size > 0;
  if (reads_rows && !beyond_end(claim)) locate(claim);
  looked_ahead_ = now();
  // What is waited for has been counted as that.
  if (filled) training_.observers.claimed(begun(claim, seconds > 0 ? 0 : looked_ahead_ - start));
  return given;
}

void Worker::locate(Claimed& claim) {
  training_.rows->prefetch(id_, claim.batch.view, *claim.rows);
  claim.located = true;
}

bool Worker::beyond_end(const Claimed& claim) const {
  const Position& from = training_.from;
  const std::uint64_t place = claim.place;
  if (training_.discipline.lockstep()) {  // whole steps
    const std::uint64_t steps = (place - from.batches) / training_.workers;
    return from.updates + steps >= training_.until.updates ||
           from.batches + steps * training_.workers >= training_.end;
  }
  const auto number = static_cast<std::size_t>(&claim - ahead_.data());
  const std::uint64_t before = (number + ahead_.size() - first_) % ahead_.size();
  const std::uint64_t claimed = training_.next_update.load(kRelaxed);
  return place >= training_.end || before >= Training::left(training_.until.updates, claimed);
}

WorkerStep Worker::begun(Claimed& claim, double seconds) const {
  WorkerStep step{.worker = id_, .place = claim.place, .k = claim.k, .count = claim.count};
  if (!training_.sparse_runs || claim.batch.streamed) step.set_batch(claim.batch);
  step.seconds = seconds;
  return step;
}

void Worker::step() {
  Claimed& last = go_on();
  if (training_.rows && !current_.located) locate(current_);
  look_ahead(last);
  WorkerStep step = begun(current_, 0);
  step.view = training_.discipline.read(id_);
  if (!compute(step)) {
    if (training_.rows) training_.rows->drop(id_, *current_.rows);
    training_.observers.abandoned(step, {.abandoned = true});
    return training_.discipline.withdraw(id_);
  }
  const Publication publication = training_.discipline.publish(id_, gradient_.data());
  if (training_.rows) push_rows(publication, step.view.t);
  if (publication.abandoned) return training_.observers.abandoned(step, publication);
  ++steps_;
  if (publication.published) may_publish_ = false;
  training_.observers.used(step);
  training_.observers.published(step, publication);
}

bool Worker::compute(WorkerStep& step) {
  BatchView& batch = *step.batch;
  step.gradient = {gradient_.data(), gradient_.size()};
  double read = 0;
  const auto rows = [&] {
    if (training_.rows) training_.rows->pull(id_, batch, *current_.rows);
    // As many as this batch has are fetched, which not every batch after it has.
    const bool follow = !next().waiting && next().batch.view.size >= batch.size;
    batch.next_rows = follow ? next().batch.view.rows : nullptr;
    read = now();
    step.seconds = read - looked_ahead_;
    training_.observers.read(step);
  };
  const auto gradient = [&] {
    const float loss = training_.source.gradient(step.view.theta, batch, gradient_.data(),
                                                 *workspace_, training_.stop.flag());
    step.seconds = now() - read;
    return loss;
  };
  try {
    return leashed::compute(step, training_.observers, training_.stop, rows, gradient);
  } catch (...) {
    return training_.fail(std::current_exception()), false;
  }
}

// Also where theta's part was dropped or excluded: each row decides for itself.
void Worker::push_rows(const Publication& publication, std::uint64_t read) {
  if (publication.abandoned) return training_.rows->drop(id_, *current_.rows);
  const double begin = now();
  const RowStep step{publication.published ? publication.t : read};
  telemetry_.rows.add(training_.rows->push(id_, *current_.rows, step));
  telemetry_.row_seconds += now() - begin;
}

void Worker::step_in_place() {
  look_ahead(go_on());
  const InPlaceView view = training_.sparse_runs->open(id_, current_.count);
  const double opened = now();
  WorkerStep step = begun(current_, opened - looked_ahead_ - view.waiting_seconds);
  step.view = {view.theta, view.t};
  std::uint64_t made = 0;
  try {
    training_.observers.read(step);
    if (!std::isfinite(update(step, view, opened, made))) {
      training_.stop.stop(StopReason::not_finite);
    }
  } catch (...) {
    training_.fail(std::current_exception());
  }
  current_.count = step.count = made;
  const RunEffect effect = view.effect_with(current_.k, made, training_.claim, training_.curvature,
                                            training_.source.described().l2);
  const ClosedRun closed = training_.sparse_runs->close(id_, made, effect);
  if (made == 0) return training_.observers.abandoned(step, {.abandoned = true});
  ++steps_;
  training_.observers.published(step, {.published = true,
                                       .t = view.t,
                                       .staleness_compute = closed.staleness,
                                       .update_seconds = closed.update_seconds,
                                       .waiting_seconds = view.waiting_seconds});
}

float Worker::update(WorkerStep step, const InPlaceView& view, double begun, std::uint64_t& made) {
  float check = 0;
  const std::size_t looked_at = gradient_.size() / 2;
  while (made < current_.count) {
    step.count = looked_at > 0 ? 1 : current_.count;
    BatchView batch = training_.feed->part(current_, made, step.count);
    step.batch = &batch;
    step.k = current_.k + made;
    if (step.streamed) step.first_row = step.streamed->first + made * training_.batch_size;
    step.loss_sum = 0;
    training_.observers.place_logits(step);
    if (looked_at > 0) {
      step.view = {gradient_.data(), view.t + made};
      step.gradient = {gradient_.data() + looked_at, looked_at};
      view.read(gradient_.data(), looked_at);
      training_.source.gradient(step.view.theta, batch, gradient_.data() + looked_at, *workspace_,
                                training_.stop.flag());
      // Of one that was stopped it may be of a part.
      if (!training_.stop.stopped()) training_.observers.computed(step);
    }
    const SparseUpdate update{
        view.theta, view.stride,   training_.batch_size,
        *view.rule, view.t + made, training_.finds_losses ? &step.loss_sum : nullptr};
    const float found = training_.in_place->update(update, batch, *workspace_);
    made += step.count;
    if (!std::isfinite(found)) batch.logits = nullptr;  // are none
    const double updated = now();
    step.seconds = updated - std::exchange(begun, updated);
    training_.observers.used(step);
    check += found;
  }
  return check;
}

}  // namespace leashed
