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
using Note = LogLine::Note;

class RecordPlay final : Sink {
 public:
  RecordPlay(const GradientSource& source, const DatasetView& data, const DatasetView* validation,
             const Choice& mode, const Sharding& sharding, const Trace& trace, bool looks_up,
             const DisciplineContext& context, const SimulationOptions& options,
             const TrainCallbacks& callbacks)
      : looks_up_(looks_up),
        trace_(trace),
        played_(source, data, validation, mode, sharding, context, options, callbacks),
        missed_(trace, played_.shards.size()),
        server_(played_.shards[0]),
        gradients_(played_),
        outcome_(played_) {
    if (!server_.has_global_model()) {
      throw Error(
          "in its mode workers look at each other's models, whose record virtual time does not "
          "play; leashed.replay makes the run again");
    }
  }

  ModeResult run() {
    const auto attached = played_.source.attach();
    outcome_.evaluate();
    outcome_.enter_evaluation();
    ModeCursor records(trace_);
    LogLine line{};
    StopFlag& stop = played_.watch.stop;
    while (!stop.stopped() && records.next(line)) {
      ++lines_;
      if (line.note == Note::none) {
        hear(line.event, line.at.ns);
        ++events_;
      } else {
        note(line.event.node, line.note);
      }
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

  // What no event tells (mode_trace.h).
  void note(modes::Node node, Note note) {
    require(note < Note::summed);
    if (note == Note::missed) return require(played_.shards.size() > 1);  // (missed_ has it)
    ModePlayer& its = player(node);
    if (note == Note::looked_up) {
      require(looks_up_ && its.working && its.rows.counts.empty());
      return gradients_.pull_rows(node);
    }
    require(played_.rule.model == WorkerRule::Model::own);
    if (note == Note::renewed) {
      for (ModePlayer::Part& part : its.parts) part.to_take.reset();
      return played_.models.renew(node, played_.context, played_.context.initial, false);
    }
    require(its.lease.count > 0 && !(looks_up_ && its.rows.counts.empty()));
    compute(node);
  }
  void let_go(ModePlayer& its) { played_.rows.holder()->release(its.rows.keys); }

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
      if (looks_up_) let_go(its);
    }
    try {
      for (telling_ = 0; telling_ < played_.shards.size(); ++telling_) {
        played_.shards[telling_].handle(event, nullptr, {ns}, *this);
      }
    } catch (const Error&) {  // a command that the mode did not know then, too
      if (event.kind != modes::Event::Kind::command) throw;
    }
  }

  void push(const modes::Event& event, ModePlayer& its) {
    require(event.ticket == its.lease.ticket && its.lease.count > 0);
    require(!looks_up_ || !its.rows.keys.parts.empty());
    if (!compute(event.node)) return;
    its.sent = std::exchange(its.lease, {});
    its.working = false;
    its.since = played_.now;
    const std::uint64_t late = server_.counts().late;
    for (telling_ = 0; telling_ < played_.shards.size(); ++telling_) push_part(event);
    const bool in_time = server_.counts().late == late;
    played_.data.batches().let_go(its.sent.first, its.sent.count, in_time);
  }

  void push_part(const modes::Event& event) {
    Payload payload = gradients_.payload(event.node, telling_);
    const bool of_first = telling_ == 0 && event.version == kNoValues;
    const bool lost = of_first || missed_(telling_, events_);
    if (lost) payload.values = nullptr;
    RowKeys rows;  // (The worker may be granted another lease by its push.)
    if (payload.rows) {
      std::swap(rows, *payload.rows);
      payload.rows = lost ? nullptr : &rows;
    }
    played_.shards[telling_].handle(event, &payload, {played_.now}, *this);
    if (RowHolder* const held = played_.rows.holder()) held->release(rows);
  }

  // Whether the run goes on.
  bool compute(modes::Node node) {
    ModePlayer& its = played_.players[node];
    for (std::size_t s = 0; s < its.parts.size(); ++s) {
      std::optional<Grant>& granted = its.parts[s].to_take;
      if (granted) played_.models.take(*granted, played_.shards.spans(s));
      granted.reset();
    }
    its.computed = played_.now;
    return gradients_.compute(node);
  }

  void grant(Grant grant) override {
    ModePlayer& its = player(grant.node);
    const modes::Node node = grant.node;
    if (grant.lease.count == 0) return;  // before its end, after which nobody looks at its model
    ModePlayer::Part& part = its.parts[telling_];
    if (telling_ > 0) return take(part, std::move(grant));
    its.lease = grant.lease;
    its.working = true;
    played_.telemetry.waiting_seconds +=
        in_seconds(std::max<std::int64_t>(0, played_.now - its.since));
    its.since = played_.now;
    played_.data.batches().hold(its.lease.first, its.lease.count);
    if (played_.data.streamed()) played_.data.examples(its.lease.first + its.lease.count);
    take(part, std::move(grant));
    if (!looks_up_) return gradients_.pull_rows(node);
    let_go(its);
    its.rows.counts.clear();
  }
  void take(ModePlayer::Part& part, Grant grant) {
    if (played_.rule.model == WorkerRule::Model::own) {
      part.to_take.emplace(std::move(grant));
    } else {
      part.pulled = std::move(grant.pulled);
    }
  }
  void wake(Time) override {}  // is in the record, where it was told
  void meet(std::span<const modes::Node>, modes::Node) override {}  // of peers alone
  void end(modes::Node node) override {
    played_.ended = player(node).ended = true;
    played_.watch.stop.finish(StopReason::epochs);
  }
  void settled(modes::Node node, const Publication& publication) override {
    outcome_.settled(node, telling_, publication);
  }

  const bool looks_up_;
  const Trace& trace_;
  PlayedMode played_;
  const MissedParts missed_;
  ParameterServer& server_;
  ModeGradients gradients_;
  ModeOutcome outcome_;
  std::size_t telling_ = 0;  // of several servers which one is told
  std::uint64_t lines_ = 0, events_ = 0;
};

}  // namespace

ModeResult simulate_record(const GradientSource& source, const DatasetView& data,
                           const DatasetView* validation, const Choice& mode,
                           const Sharding& sharding, const Trace& trace, bool looks_up,
                           const DisciplineContext& context, const SimulationOptions& options,
                           const TrainCallbacks& callbacks) {
  return RecordPlay(source, data, validation, mode, sharding, trace, looks_up, context, options,
                    callbacks)
      .run();
}

}  // namespace leashed
