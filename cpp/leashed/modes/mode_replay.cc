#include "leashed/modes/mode_replay.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "leashed/base/error.h"
#include "leashed/data/make_batches.h"
#include "leashed/data/reading.h"
#include "leashed/engine/step.h"
#include "leashed/model/gradient_source.h"
#include "leashed/modes/mode_server.h"
#include "leashed/modes/mode_trace.h"
#include "leashed/server/own_models.h"
#include "leashed/server/parameter_server.h"
#include "leashed/server/served_rows.h"

namespace leashed {
namespace {

using modes::Action;
using modes::Event;
using modes::Node;
using modes::WorkerRule;
using Note = LogLine::Note;

// A command that the mode does not know has changed nothing then, and does not now.
template <class Tell>
void told(const Event& event, const Tell& tell) {
  try {
    tell();
  } catch (const Error&) {
    if (event.kind != Event::Kind::command) throw;
  }
}

// Tells a machine what was recorded, without gradients and parameters, of which its answers are no
// function: every push must be under what was granted, and every step a part of it.
class Audit {
 public:
  Audit(const modes::ServerPolicy& machine, const ParameterServer& server,
        const ReplayOptions& options)
      : machine_(machine),
        peers_(!server.holds()),
        steps_recorded_(!server.has_global_model()),
        looks_up_(options.looks_up),
        seats_(options.workers) {}

  // The updates that there were; none: it was interrupted.
  std::optional<std::uint64_t> count(const Trace& trace, const std::function<bool()>& interrupted) {
    Interruption interruption(interrupted);
    ModeCursor records(trace);
    LogLine record{};
    while (records.next(record)) {
      if (interruption()) return std::nullopt;
      ++records_;
      record.note == Note::none ? hear(record.event, record.at)
                                : note(record.event.node, record.note);
    }
    return updates_;
  }

 private:
  struct Seat {
    bool granted = false;
    modes::Lease lease = {};
    std::uint64_t version = 0;
    std::uint32_t steps = 0;
    bool looked_up = false, left = false;  // since it was granted
  };

  void require(bool possible) const {
    if (possible) return;
    throw Error("its records contradict each other at event " + std::to_string(records_) +
                "; record the training again");
  }
  Seat& seat(Node node) {
    require(node < seats_.size());
    return seats_[node];
  }

  void note(Node node, Note note) {
    require(note < Note::summed);
    Seat& one = seat(node);
    if (note == Note::looked_up) {
      require(looks_up_ && one.granted && one.lease.count > 0 && !one.left);
      return require(!std::exchange(one.looked_up, true));
    }
    if (!steps_recorded_) return of_own(one, note);
    require(note == Note::stepped && one.granted);
    require(one.steps++ < steps_of(machine_.rule(), one.lease));
    updates_ += peers_;
  }
  // Of a worker elsewhere: the steps on a lease that it has lost, or that it is another.
  void of_own(Seat& one, Note note) {
    require(machine_.rule().model == WorkerRule::Model::own);
    if (note == Note::renewed) return;
    require(std::exchange(one.granted, false) && (!looks_up_ || one.looked_up));
  }
  void hear(const Event& event, Time at) {
    require(static_cast<std::size_t>(event.node) < seats_.size() && at.ns >= at_.ns);
    at_ = at;
    if (event.kind == Event::Kind::push) {
      Seat& one = seat(event.node);
      require(std::exchange(one.granted, false) && event.ticket == one.lease.ticket &&
              (event.version == one.version || event.version == kNoValues));
      require(!steps_recorded_ || one.steps == steps_of(machine_.rule(), one.lease));
      require(!looks_up_ || (one.looked_up && !one.left));
    }
    if (event.kind == Event::Kind::leave) seat(event.node).left = true;
    out_.clear();
    told(event, [&] { machine_.on(event, at, out_); });
    for (const Action& action : out_.actions()) {
      if (action.kind == Action::Kind::grant) {
        seat(action.node) = {true, action.lease, action.version};
      } else if (action.kind == Action::Kind::apply || action.kind == Action::Kind::exchange) {
        ++updates_;
      }
    }
  }

  modes::ServerPolicy machine_;
  const bool peers_, steps_recorded_, looks_up_;
  std::vector<Seat> seats_;
  modes::Out out_;
  Time at_{0};
  std::uint64_t updates_ = 0, records_ = 0;
};

class ModeReplayer final : Sink {
 public:
  ModeReplayer(const GradientSource& source, const DatasetView& data,
               const modes::ServerPolicy& machine, const DisciplineContext& context,
               const std::vector<std::shared_ptr<Table>>& tables, const ReplayOptions& options)
      : source_(source),
        context_(context),
        looks_up_(options.looks_up),
        batches_(make_batches(data, options.batch_size, options.seed, options.stream, false, true)),
        reading_(options.stream, 0),
        workspace_(source.make_workspace()),
        rows_(source, tables),
        server_(machine, context, rows_.holder()),
        rule_(server_.rule()),
        peers_(!server_.holds()),
        steps_recorded_(!server_.has_global_model()),
        models_(server_, context),
        seats_(options.workers),
        interruption_(options.interrupted),
        observers_(options.workers) {
    for (StepObserver* const one : options.observers) observers_.add(*one);
    for (Seat& seat : seats_) seat.sent = AlignedArray<float>(source.dimension());
  }

  const ParameterServer& server() const { return server_; }

  Replayed run(const Trace& trace, std::uint64_t until) {
    const auto attached = source_.attach();
    ModeCursor records(trace);
    LogLine record{};
    while (t() < until && !interrupted() && records.next(record)) {
      record.note == Note::none ? hear(record.event, record.at)
                                : note(record.event.node, record.note);
    }
    result_.t = t();
    result_.parameters = parameters();
    if (before_) result_.before.assign(before_.data(), before_.data() + source_.dimension());
    for (const std::uint64_t kept : server_.counts().worker_kept) result_.published += kept;
    result_.observed = observers_.found();
    return std::move(result_);
  }

 private:
  struct Seat {
    Grant granted{};
    bool taken = false;  // by its own model
    std::uint32_t steps = 0;
    std::vector<float> own;  // the model when the step was begun, where others change it meanwhile
    AlignedArray<float> sent;
    double loss = 0;
    // Of a model over tables.
    Batch batch;
    PulledRows pulled;
    ShownRows shown;
    AlignedArray<float> row_gradients;
  };

  bool interrupted() { return result_.interrupted |= interruption_(); }
  std::uint64_t t() { return peers_ ? steps_ : server_.holder().pull().t(); }
  std::vector<float> parameters() {
    if (steps_recorded_) return {models_.mean(), models_.mean() + source_.dimension()};
    const ParameterVector::Pin latest = server_.holder().pull();
    return {latest.data(), latest.data() + source_.dimension()};
  }

  void hear(const Event& event, Time at) {
    if (event.kind == Event::Kind::leave && looks_up_) let_go(seats_[event.node]);
    if (event.kind != Event::Kind::push) {
      return told(event, [&] { server_.handle(event, nullptr, at, *this); });
    }
    Seat& seat = seats_[event.node];
    const modes::Lease& lease = seat.granted.lease;
    // (What its push would do is of no use any more where it is interrupted.)
    if (!steps_recorded_ && !make_steps(event.node)) return;
    if (rule_.sends == WorkerRule::Sends::model && !peers_) {
      std::copy_n(models_[event.node], source_.dimension(), seat.sent.data());
    }
    if (!steps_recorded_) pushed_[event.ticket] = part(event.node);
    const bool lost = event.version == kNoValues;
    Payload payload{lost ? nullptr : &seat.sent, lease.count};
    RowKeys rows;  // (The node may be granted another lease by its push.)
    if (rows_.holder()) {
      std::swap(rows, seat.pulled.keys);
      payload.rows = lost ? nullptr : &rows;
      payload.row_gradients = &seat.row_gradients;
    }
    seat.granted.pulled.release();
    updated_ = false;
    const std::uint64_t first = lease.first, count = lease.count, late = server_.counts().late;
    server_.handle(event, &payload, at, *this);
    if (RowHolder* const held = rows_.holder()) held->release(rows);
    batches_->let_go(first, count, server_.counts().late == late);
    if (updated_) pushed_.clear();  // what was held is part of it, or dropped
  }

  // Those of its lease; false: it was interrupted meanwhile.
  bool make_steps(Node node) {
    Seat& seat = seats_[node];
    take(seat);
    while (seat.steps < steps_of(rule_, seat.granted.lease)) {
      compute(node);
      if (interrupted()) return false;
    }
    return true;
  }

  void note(Node node, Note note) {
    if (note == Note::looked_up) return pull_rows(seats_[node]);
    if (steps_recorded_) return step(node);
    // Of a worker elsewhere, which nobody was told of by a push.
    if (note == Note::stepped) return void(make_steps(node));
    models_.renew(node, context_, context_.initial, false);
  }

  // One that the record of the training has, since others look at the model.
  void step(Node node) {
    result_.before = parameters();
    compute(node);
    result_.last = {part(node)};
    const float* const gradient = seats_[node].sent.data();
    result_.gradient.assign(gradient, gradient + source_.dimension());
    ++steps_;
  }

  // A gradient, and the step that is made with it on a model of the worker's own.
  void compute(Node node) {
    Seat& seat = seats_[node];
    const modes::Lease& lease = seat.granted.lease;
    const std::uint32_t steps = steps_of(rule_, lease), i = seat.steps++;
    const std::uint64_t begin = lease.count * i / steps, end = lease.count * (i + 1) / steps;
    RowHolder* const held = rows_.holder();
    Batch& batch = held ? seat.batch : batch_;
    if (held) {
      held->show(seat.pulled, batch.view, seat.shown, seat.row_gradients);
    } else {
      batches_->fill_span(lease.first + begin, end - begin, batch);
    }
    const float* theta = rule_.model == WorkerRule::Model::pulled ? seat.granted.pulled.data()
                         : steps_recorded_                        ? seat.own.data()
                                                                  : models_[node];
    WorkerStep step{.worker = node,
                    .k = lease.number,
                    .view = {theta, seat.granted.t},
                    .gradient = {seat.sent.data(), seat.sent.size()}};
    step.set_batch(batch);
    const auto rows = [&] {
      observers_.claimed(step);
      observers_.read(step);
    };
    const auto gradient = [&] {
      const float loss = source_.gradient(theta, batch.view, seat.sent.data(), *workspace_, never_);
      seat.loss = loss;
      return loss;
    };
    StopFlag on;  // also where a loss is no number
    if (leashed::compute(step, observers_, on, rows, gradient)) observers_.used(step);
    if (!rule_.steps_own) return;
    models_.step(node, seat.sent.data());
    if (steps_recorded_) copy_own(node);
  }
  void copy_own(Node node) {
    seats_[node].own.assign(models_[node], models_[node] + source_.dimension());
  }

  ReplayedPart part(Node node) {
    const Seat& seat = seats_[node];
    const std::uint64_t read = peers_ ? steps_ : seat.granted.t;
    return {node,
            {.outcome = trace::Outcome::published, .k = seat.granted.lease.number, .t_read = read},
            seat.loss,
            1};
  }

  void grant(Grant grant) override {
    Seat& seat = seats_[grant.node];
    if (grant.lease.count > 0) batches_->hold(grant.lease.first, grant.lease.count);
    seat.granted = std::move(grant);
    seat.steps = 0;
    const bool has_rows = rows_.holder() && seat.granted.lease.count > 0;
    if (has_rows) looks_up_ ? let_go(seat) : pull_rows(seat);
    seat.taken = false;
    if (!steps_recorded_) return;
    take(seat);
    copy_own(seat.granted.node);
  }
  void pull_rows(Seat& seat) {
    const modes::Lease& lease = seat.granted.lease;
    batches_->fill_span(lease.first, lease.count, seat.batch);
    rows_.holder()->pull(seat.batch.view, seat.pulled);
  }
  void let_go(Seat& seat) { rows_.holder()->release(seat.pulled.keys); }
  // By its worker's model, which is as it was where the grant has never reached that.
  void take(Seat& seat) {
    if (rule_.model != WorkerRule::Model::own || std::exchange(seat.taken, true)) return;
    models_.take(seat.granted);
    seat.granted.pulled.release();
  }
  void updating(std::span<const std::uint64_t> tickets, const float* mean, double factor) override {
    updated_ = true;
    if (steps_recorded_) return;
    before_.release();
    before_ = server_.holder().pull();
    result_.last.clear();
    for (const std::uint64_t ticket : tickets) {
      ReplayedPart& one = result_.last.emplace_back(pushed_.at(ticket));
      one.record.staleness = before_.t() - one.record.t_read;
    }
    settled_ = 0;
    result_.gradient.clear();
    if (mean) result_.gradient.assign(mean, mean + source_.dimension());
    for (float& value : result_.gradient) value = static_cast<float>(value * factor);
  }
  void settled(Node node, const Publication& publication) override {
    observers_.published({.worker = node}, publication);
    if (publication.excluded) {
      ++result_.excluded;
    } else if (!publication.published) {
      ++result_.dropped;
    } else if (!steps_recorded_) {
      result_.last[settled_++].factor = publication.factor;
    }
  }
  void meet(std::span<const Node> nodes, Node) override { models_.meet(nodes); }
  void wake(Time) override {}
  void end(Node) override {}

  const GradientSource& source_;
  const DisciplineContext& context_;
  const bool looks_up_;
  const std::unique_ptr<const BatchSource> batches_;
  const Reading reading_;
  const std::unique_ptr<Workspace> workspace_;
  ServedRows rows_;
  ParameterServer server_;
  const WorkerRule rule_;
  const bool peers_;
  const bool steps_recorded_;
  OwnModels models_;
  std::vector<Seat> seats_;
  std::map<std::uint64_t, ReplayedPart> pushed_;  // by ticket, since the last update
  ParameterVector::Pin before_;                   // of the server's last update
  std::size_t settled_ = 0;                       // of its parts
  bool updated_ = false;                          // by the event that is handled
  std::uint64_t steps_ = 0;                       // that are recorded
  Batch batch_;
  const std::atomic<bool> never_{false};
  Interruption interruption_;
  Observers observers_;
  Replayed result_;
};

}  // namespace

Replayed replay(const GradientSource& source, const DatasetView& data,
                const modes::ServerPolicy& machine, const DisciplineContext& context,
                const std::vector<std::shared_ptr<Table>>& tables, const Trace& trace,
                const ReplayOptions& options) {
  ModeReplayer replayer(source, data, machine, context, tables, options);
  const auto recorded =
      Audit(machine, replayer.server(), options).count(trace, options.interrupted);
  if (!recorded) return {.interrupted = true};
  require_recorded(options, *recorded);
  // Rows that are looked up behind the last update may take the place of others.
  const bool whole = options.looks_up && options.until >= *recorded;
  Replayed result = replayer.run(trace, whole ? ReplayOptions::kAll : options.until);
  compare_with_end(result, trace, options);
  return result;
}

}  // namespace leashed
