#include "leashed/simulation/play_record.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "leashed/base/error.h"
#include "leashed/modes/mode_trace.h"
#include "leashed/simulation/mode_gradients.h"
#include "leashed/simulation/mode_outcome.h"
#include "leashed/simulation/played_mode.h"

namespace leashed {
namespace {

using modes::WorkerRule;

class RecordPlay final : Sink {
 public:
  RecordPlay(const GradientSource& source, const DatasetView& data, const DatasetView* validation,
             const Choice& mode, const DisciplineContext& context, const SimulationOptions& options,
             const TrainCallbacks& callbacks)
      : played_(source, data, validation, mode, memorywise(source.dimension(), 1), context, options,
                callbacks),
        server_(played_.shards[0]),
        gradients_(played_),
        outcome_(played_) {
    if (!server_.has_global_model()) {
      throw Error(
          "in its mode workers look at each other's models, whose record virtual time does not "
          "play; leashed.replay makes the run again");
    }
  }

  ModeResult run(const Trace& trace) {
    const auto attached = played_.source.attach();
    outcome_.evaluate();
    outcome_.enter_evaluation();
    ModeCursor records(trace);
    LogLine line{};
    StopFlag& stop = played_.watch.stop;
    while (!stop.stopped() && records.next(line)) {
      ++lines_;
      line.step ? step(line.event.node) : hear(line.event, line.at.ns);
      if (played_.updates() >= played_.options.until.updates) stop.stop(StopReason::updates);
      played_.watch.looked();
    }
    // Else it was stopped, or killed, before all was trained.
    if (!stop.stopped() && !played_.ended) stop.stop(StopReason::seconds);
    return outcome_.finish(lines_);
  }

 private:
  void require(bool possible) const {
    if (possible) return;
    throw Error("its records contradict each other at event " + std::to_string(lines_) +
                "; record the training again");
  }
  ModePlayer& player(modes::Node node) {
    require(node < played_.players.size());
    return played_.players[node];
  }

  // Of a worker's own model that no event tells of (mode_trace.h).
  void step(modes::Node node) {
    require(played_.rule.model == WorkerRule::Model::own);
    if (node >= modes::kMostNodes) {
      const modes::Node its = node - modes::kMostNodes;
      player(its).parts[0].to_take.reset();
      return played_.models.renew(its, played_.context, played_.context.initial, false);
    }
    require(player(node).lease.count > 0);
    compute(node);
  }

  // Until then it is evaluated.
  void pass(std::int64_t ns) {
    require(ns >= played_.now);
    Timeline<ModeEvent>& timeline = played_.timeline;
    while (!timeline.empty() && timeline.next().ns <= ns && !played_.watch.stop.stopped()) {
      played_.now = timeline.take().ns;
      outcome_.evaluate();
      outcome_.enter_evaluation();
    }
    played_.now = ns;
  }

  void hear(const modes::Event& event, std::int64_t ns) {
    ModePlayer& its = player(event.node);
    pass(ns);
    if (played_.watch.stop.stopped()) return;
    if (event.kind == modes::Event::Kind::push) return push(event, its);
    if (event.kind == modes::Event::Kind::leave) {
      played_.departures += !its.ended;
      if (its.working) played_.lost += its.lease.count;
      its.working = false;
    }
    try {
      server_.handle(event, nullptr, {ns}, *this);
    } catch (const Error&) {  // a command that the mode did not know then, too
      if (event.kind != modes::Event::Kind::command) throw;
    }
  }

  void push(const modes::Event& event, ModePlayer& its) {
    require(event.ticket == its.lease.ticket && its.lease.count > 0);
    if (!compute(event.node)) return;
    its.sent = std::exchange(its.lease, {});
    its.working = false;
    its.since = played_.now;
    Payload payload = gradients_.payload(event.node, 0);
    if (event.version == kNoValues) payload.values = nullptr;
    const std::uint64_t late = server_.counts().late;
    server_.handle(event, &payload, {played_.now}, *this);
    const bool in_time = server_.counts().late == late;
    played_.data.batches().let_go(its.sent.first, its.sent.count, in_time);
  }

  // Whether the run goes on.
  bool compute(modes::Node node) {
    ModePlayer& its = played_.players[node];
    std::optional<Grant>& granted = its.parts[0].to_take;
    if (granted) played_.models.take(*granted);
    granted.reset();
    its.computed = played_.now;
    return gradients_.compute(node);
  }

  void grant(Grant grant) override {
    ModePlayer& its = player(grant.node);
    const modes::Node node = grant.node;
    if (grant.lease.count == 0) return;  // before its end, after which nobody looks at its model
    its.lease = grant.lease;
    its.working = true;
    played_.telemetry.waiting_seconds +=
        in_seconds(std::max<std::int64_t>(0, played_.now - its.since));
    its.since = played_.now;
    played_.data.batches().hold(its.lease.first, its.lease.count);
    if (played_.data.streamed()) played_.data.examples(its.lease.first + its.lease.count);
    ModePlayer::Part& part = its.parts[0];
    if (played_.rule.model == WorkerRule::Model::own) {
      part.to_take.emplace(std::move(grant));
    } else {
      part.pulled = std::move(grant.pulled);
    }
    gradients_.pull_rows(node);
  }
  void wake(Time) override {}  // is in the record, where it was told
  void meet(std::span<const modes::Node>, modes::Node) override {}  // of peers alone
  void end(modes::Node node) override {
    played_.ended = player(node).ended = true;
    played_.watch.stop.finish(StopReason::epochs);
  }
  void settled(modes::Node node, const Publication& publication) override {
    outcome_.settled(node, 0, publication);
  }

  PlayedMode played_;
  ParameterServer& server_;
  ModeGradients gradients_;
  ModeOutcome outcome_;
  std::uint64_t lines_ = 0;
};

}  // namespace

ModeResult simulate_record(const GradientSource& source, const DatasetView& data,
                           const DatasetView* validation, const Choice& mode, const Trace& trace,
                           const DisciplineContext& context, const SimulationOptions& options,
                           const TrainCallbacks& callbacks) {
  return RecordPlay(source, data, validation, mode, context, options, callbacks).run(trace);
}

}  // namespace leashed
