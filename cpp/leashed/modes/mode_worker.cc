#include "leashed/modes/mode_worker.h"

#include <exception>
#include <utility>

#include "leashed/base/clock.h"
#include "leashed/engine/step.h"

namespace leashed {

using modes::WorkerRule;

ModeWorker::ModeWorker(Run& run, ModeServer& server, const WorkerRule& rule, OwnModels* models,
                       Lane& lane, Turns* turns)
    : run_(run),
      server_(server),
      rule_(rule),
      models_(models),
      lane_(lane),
      turns_(turns),
      workspace_(run.source.make_workspace()) {}

void ModeWorker::work() {
  const double start = now();
  try {
    const auto attached = run_.source.attach();
    server_.begin(lane_);
    while (await() && compute()) server_.push(lane_);
  } catch (...) {  // of the source, or out of memory
    run_.fail(std::current_exception());
  }
  run_.leave(lane_.number);
  server_.leave(lane_);
  telemetry().running_seconds += now() - start;
}

bool ModeWorker::await() {
  const double begun = now();
  const bool granted = server_.await(lane_);
  // Where it reads tables, its batch has come with the grant.
  const bool read = granted && run_.rows && lane_.batch.streamed;
  const double data = read ? lane_.batch.streamed->waited_seconds : 0;
  telemetry().waiting_seconds += now() - begun - data;
  telemetry().sampling_seconds += data;
  if (!granted || rule_.model != WorkerRule::Model::own) return granted;
  if (!lane_.taken) models_->take(lane_.number, lane_.pulled);
  lane_.taken = true;
  server_.taken(lane_);
  return true;
}

bool ModeWorker::compute() {
  const modes::Lease& lease = lane_.lease;
  const std::uint32_t steps = steps_of(rule_, lease);
  Turns::Turn held;  // from the first gradient on
  for (std::uint32_t i = lane_.done; i < steps; ++i) {
    WorkerStep step{.worker = lane_.number,
                    .k = lease.number,
                    .gradient = {lane_.gradient.data(), lane_.gradient.size()}};
    double sampled = now();
    const auto rows = [&] {
      if (run_.streams()) held.reset();  // they may have to be waited for
      const std::uint64_t begin = lease.count * i / steps, end = lease.count * (i + 1) / steps;
      server_.read(lane_, lease.first + begin, end - begin);
      step.set_batch(lane_.batch);
      const double start = std::exchange(sampled, now());
      step.seconds = sampled - start;
      run_.observers.claimed(step);
      step.seconds = 0;  // it was read with the grant
      step.view = {lane_.theta, lane_.pulled.t};
      run_.observers.read(step);
    };
    const auto gradient = [&] {
      if (turns_ && !held) {
        held = turn();
        if (!held) return 0.0f;  // the run has been stopped
        sampled = now();
      }
      const float loss = run_.source.gradient(step.view.theta, *step.batch, lane_.gradient.data(),
                                              *workspace_, run_.stop.flag());
      step.seconds = now() - sampled;
      return loss;
    };
    if (!leashed::compute(step, run_.observers, run_.stop, rows, gradient)) {
      return run_.observers.abandoned(step, {.abandoned = true}), false;
    }
    run_.observers.used(step);
    if (!rule_.steps_own) continue;
    if (!step_own(i + 1 == steps)) return false;
    ++lane_.done;
  }
  return true;
}

Turns::Turn ModeWorker::turn() {
  const double asked = now();
  Turns::Turn found = turns_->take();
  telemetry().waiting_seconds += now() - asked;
  return found;
}

bool ModeWorker::step_own(bool last) {
  if (!models_) return server_.step(lane_, last);
  return models_->step(lane_.number, lane_.gradient.data()), true;
}

}  // namespace leashed
