#include "leashed/engine/monitor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "leashed/base/error.h"
#include "leashed/engine/executor.h"
#include "leashed/engine/saver.h"

namespace leashed {
namespace {

constexpr double kSlice = 0.02;  // seconds between two looks at signals and the clock
constexpr double kShare = 0.1;   // of one thread, for evaluation, where no interval is given
// Where a loss is asked for, between two copies of theta, at first: short, so that where an update
// takes some milliseconds there is a copy of each, but copies take no more than a tenth of a
// thread.
constexpr double kCopyInterval = 0.0002;
constexpr double kCopyShare = 0.1;
constexpr double kCopyTime = 1.0 / 128;  // of the time so far: updates may be slow, or copies none
constexpr double kLastEvaluation = 0.1;  // seconds of evaluation after an interruption
// Of an evaluation's time on one thread, after one, before an alarm may ask for the next: workers
// have more than half of the processors even where alarms are false again and again.
constexpr double kAlarm = 0.25;
constexpr double kShortestInterval = 0.01;
constexpr double kStreamInterval =
    1e-3;                         // of the time so far: on a stream an evaluation is nothing
constexpr double kAgain = 0.001;  // until a checkpoint is tried again

}  // namespace

Monitor::Monitor(Run& run, History& history, Saver* saving, const Stopwatch& clock,
                 const Intervals& every, const TrainCallbacks& callbacks)
    : run_(run),
      history_(history),
      saving_(saving),
      clock_(clock),
      every_(every),
      callbacks_(callbacks) {}

double Monitor::interval() const {
  if (every_.evaluate > 0) return every_.evaluate;
  const double least = run_.streams() ? kStreamInterval * clock_.seconds() : 0;
  return std::max(
      {kShortestInterval, least, history_.evaluation_seconds() * (1 - kShare) / kShare});
}

void Monitor::watch(Executor& executor) {
  const auto clock = [this] { return clock_.seconds(); };
  double next = interval(), evaluated = 0;
  if (run_.until.wants_loss()) next_copy_ = copy_interval_ = kCopyInterval;
  double next_checkpoint = every_.checkpoint;
  for (;;) {
    const double left = std::min({kSlice, next - clock(), next_copy_ - clock(),
                                  next_checkpoint - clock(), run_.until.seconds - clock()});
    if (executor.wait(std::max(left, 0.0))) break;
    look();
    if (run_.stop.stopped()) {
      executor.wait(kSlice);
    } else if (bool still = run_.pause && run_.pause->complete();
               still || clock() >= next_checkpoint || wanted()) {
      const bool passed = still && run_.pause->at_end();
      if (passed && evaluate(run_.workers)) weigh(true);
      if (!still || run_.pause->asked() || clock() >= next_checkpoint) {
        const bool saved = save();
        next_checkpoint = clock() + (saved ? every_.checkpoint : kAgain);
        still |= saved;
      }
      if (run_.pause && still) run_.pause->go_on(passed);
    } else if (clock() >= next) {
      const double begin = clock();
      evaluate(history_.promising() ? run_.workers : 1);
      next = (every_.evaluate > 0 ? begin : clock()) + interval();
      evaluated = clock();
      copy_interval_ = kCopyInterval;
    } else if (clock() >= next_copy_) {
      remember();
      if (history_.promising() && clock() >= evaluated + kAlarm * history_.evaluation_seconds()) {
        next = clock();
      }
    }
  }
  if (run_.metrics) run_.metrics->workers_ended();
}

void Monitor::remember() {
  const auto pause = [this] {
    return std::max(
        {copy_interval_, history_.copy_seconds() / kCopyShare, clock_.seconds() * kCopyTime});
  };
  if (history_.remember()) copy_interval_ = 2 * pause();
  next_copy_ = clock_.seconds() + pause();
}

void Monitor::look() {
  const bool forsaken = run_.rows && run_.rows->forsaken();
  if (forsaken || (callbacks_.interrupted && callbacks_.interrupted())) {
    run_.stop.stop(StopReason::interrupted);
    if (!interrupted_) patience_ends_ = now() + kLastEvaluation;
    interrupted_ = true;
  }
  if (clock_.running() && clock_.seconds() >= run_.until.seconds) {
    run_.stop.stop(StopReason::seconds);
  }
}

bool Monitor::keep_evaluating() {
  if (now() >= next_look_) {
    look();
    next_look_ = now() + kSlice;
    // (What is evaluated is a copy of its own then.)
    if (clock_.running() && !run_.stop.stopped() && wanted()) save();
  }
  if (clock_.running()) {
    if (clock_.seconds() >= next_copy_) remember();
    return !run_.stop.stopped();
  }
  return !interrupted_ || now() < patience_ends_;
}

bool Monitor::evaluate(std::size_t threads) {
  if (!history_.evaluate(threads, bool(callbacks_.wanted))) return false;
  const Evaluated& latest = history_.evaluations().back();
  judge(latest);
  if (run_.rows) run_.rows->reach(latest.updates);
  if (callbacks_.progress) callbacks_.progress(latest, history_.initial_loss());
  return true;
}

void Monitor::weigh(bool passed) {
  if (!callbacks_.judge || crashed_) return;
  const Verdict verdict = callbacks_.judge(history_.evaluations().back(), passed);
  if (verdict.keep) {
    auto taken = saving_->take(history_.initial_loss());
    if (!taken) throw Error("there is no moment of which all is known; leave patience out");
    callbacks_.keep(*std::move(taken));
  }
  if (verdict.stop && passed) run_.stop.stop(StopReason::patience);
}

bool Monitor::save() {
  if (!saving_ || !callbacks_.checkpoint) return true;
  if (callbacks_.saving) callbacks_.saving();
  auto taken = saving_->take(history_.initial_loss());
  if (!taken) return false;
  if (run_.rows) run_.rows->reach(taken->position.updates);
  callbacks_.checkpoint(*std::move(taken));
  return true;
}

void Monitor::judge(const Evaluated& e) {
  if (run_.streams()) return;  // the loss is the workers', who have judged it
  const StopRules& until = run_.until;
  const double initial = history_.initial_loss();
  if (!std::isfinite(e.loss)) {
    crashed_ = true;
    return run_.stop.stop(StopReason::not_finite);
  }
  if (until.reached(e.loss, initial)) {
    converged_ = true;
    run_.stop.stop(until.reached_fraction(e.loss, initial) ? StopReason::loss_fraction
                                                           : StopReason::loss);
  } else if (e.loss >= until.divergence * initial) {
    run_.stop.stop(StopReason::divergence);
  }
}

}  // namespace leashed
