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
#include <vector>

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
#include "leashed/server/shards.h"

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
        several_(options.sharding.shards.size() > 1),
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
    if (note == Note::missed) return require(several_);  // (MissedParts has looked of whom)
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
  const bool peers_, steps_recorded_, looks_up_, several_;
  std::vector<Seat> seats_;
  modes::Out out_;
  Time at_{0};
  std::uint64_t updates_ = 0, records_ = 0;
};

class ModeReplayer final : Sink {
 public:
  ModeReplayer(const GradientSource& source, const DatasetView& data,
               const modes::ServerPolicy& machine, const DisciplineContext& context,
               const std::vector<std::shared_ptr<Table>>& tables, const Trace& trace,
               const ReplayOptions& options)
      : source_(source),
        context_(context),
        trace_(trace),
        looks_up_(options.looks_up),
        batches_(make_batches(data, options.batch_size, options.seed, options.stream, false, true)),
        reading_(options.stream, 0),
        workspace_(source.make_workspace()),
        rows_(source, tables),
        shards_(
            machine, context,
            options.sharding.shards.empty() ? memorywise(source.dimension(), 1) : options.sharding,
            rows_.holder(), options.servers_of_tables),
        missed_(trace, shards_.size()),
        server_(shards_[0]),
        rule_(server_.rule()),
        peers_(!server_.holds()),
        steps_recorded_(!server_.has_global_model()),
        models_(server_, context),
        seats_(options.workers),
        parts_(shards_.size()),
        before_(shards_.size()),
        interruption_(options.interrupted),
        observers_(options.workers) {
    for (StepObserver* const one : options.observers) observers_.add(*one);
    for (Seat& seat : seats_) {
      seat.sent = AlignedArray<float>(source.dimension());
      seat.granted.resize(shards_.size());
    }
    if (shards_.size() == 1) return;
    for (std::size_t s = 0; s < parts_.size(); ++s) {
      parts_[s].values = AlignedArray<float>(shards_.size(s));
      row_pushes_.push_back(&parts_[s].rows);
    }
  }

  const ParameterServer& server() const { return server_; }

  Replayed run(std::uint64_t until) {
    const auto attached = source_.attach();
    ModeCursor records(trace_);
    LogLine record{};
    while (t() < until && !interrupted() && records.next(record)) {
      if (record.note != Note::none) {
        note(record.event.node, record.note);
        continue;
      }
      hear(record.event, record.at);
      ++events_;
    }
    result_.t = t();
    result_.parameters = parameters();
    if (before_[0]) result_.before = assembled(before_);
    for (const std::uint64_t kept : server_.counts().worker_kept) result_.published += kept;
    result_.observed = observers_.found();
    return std::move(result_);
  }

 private:
  using Pins = std::vector<ParameterVector::Pin>;  // by server

  struct Seat {
    std::vector<Grant> granted;  // by server
    bool taken = false;          // by its own model
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
  std::uint64_t t() { return peers_ ? steps_ : shards_.updates(); }
  std::vector<float> parameters() {
    if (steps_recorded_) return {models_.mean(), models_.mean() + source_.dimension()};
    return assembled(latest());
  }
  Pins latest() {
    Pins pins;
    for (std::size_t s = 0; s < shards_.size(); ++s) pins.push_back(shards_[s].holder().pull());
    return pins;
  }
  std::vector<float> assembled(const Pins& pins) {
    const float* const all =
        shards_.assembled([&](std::size_t s) { return pins[s].data(); }, whole_);
    return {all, all + source_.dimension()};
  }
  const modes::Lease& lease(const Seat& seat) const { return seat.granted[0].lease; }

  // Each server hears it.
  void handle(const Event& event, Payload* payload, Time at) {
    for (telling_ = 0; telling_ < shards_.size(); ++telling_) {
      shards_[telling_].handle(event, payload, at, *this);
    }
  }

  void hear(const Event& event, Time at) {
    updated_ = false;
    if (event.kind == Event::Kind::leave && looks_up_) let_go(seats_[event.node]);
    if (event.kind != Event::Kind::push) {
      return told(event, [&] { handle(event, nullptr, at); });
    }
    Seat& seat = seats_[event.node];
    const modes::Lease its = lease(seat);
    // (What its push would do is of no use any more where it is interrupted.)
    if (!steps_recorded_ && !make_steps(event.node)) return;
    if (rule_.sends == WorkerRule::Sends::model && !peers_) {
      std::copy_n(models_[event.node], source_.dimension(), seat.sent.data());
    }
    if (!steps_recorded_) pushed_[event.ticket] = part(event.node);
    for (Grant& one : seat.granted) one.pulled.release();
    const std::uint64_t late = server_.counts().late;
    shards_.size() == 1 ? push_whole(seat, event, at) : push_parts(seat, event, at);
    batches_->let_go(its.first, its.count, server_.counts().late == late);
    if (updated_) pushed_.clear();  // what was held is part of it, or dropped
  }

  void push_whole(Seat& seat, const Event& event, Time at) {
    const bool lost = event.version == kNoValues;
    Payload payload{lost ? nullptr : &seat.sent, lease(seat).count};
    RowKeys rows;  // (The node may be granted another lease by its push.)
    if (rows_.holder()) {
      std::swap(rows, seat.pulled.keys);
      payload.rows = lost ? nullptr : &rows;
      payload.row_gradients = &seat.row_gradients;
    }
    handle(event, &payload, at);
    if (RowHolder* const held = rows_.holder()) held->release(rows);
  }
  // To each of several servers its part, where that had it.
  void push_parts(Seat& seat, const Event& event, Time at) {
    const std::uint64_t count = lease(seat).count;
    RowHolder* const held = rows_.holder();
    if (held) {
      held->split(seat.pulled.keys, seat.row_gradients.data(), shards_.rows(), row_pushes_);
    }
    for (telling_ = 0; telling_ < shards_.size(); ++telling_) {
      Part& part = parts_[telling_];
      shards_.gather(telling_, seat.sent.data(), part.values.data());
      const bool of_first = telling_ == 0 && event.version == kNoValues;
      const bool lost = of_first || missed_(telling_, events_);
      Payload payload{lost ? nullptr : &part.values, count};
      if (held && !lost) {
        payload.rows = &part.rows.keys;
        payload.row_gradients = &part.rows.gradients;
      }
      shards_[telling_].handle(event, &payload, at, *this);
      if (held) held->release(part.rows.keys);
    }
  }

  // Those of its lease; false: it was interrupted meanwhile.
  bool make_steps(Node node) {
    Seat& seat = seats_[node];
    take(seat);
    while (seat.steps < steps_of(rule_, lease(seat))) {
      compute(node);
      if (interrupted()) return false;
    }
    return true;
  }

  void note(Node node, Note note) {
    if (note == Note::missed) return;
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
    const modes::Lease& its = lease(seat);
    const std::uint32_t steps = steps_of(rule_, its), i = seat.steps++;
    const std::uint64_t begin = its.count * i / steps, end = its.count * (i + 1) / steps;
    RowHolder* const held = rows_.holder();
    Batch& batch = held ? seat.batch : batch_;
    if (held) {
      held->show(seat.pulled, batch.view, seat.shown, seat.row_gradients);
    } else {
      batches_->fill_span(its.first + begin, end - begin, batch);
    }
    const float* theta = rule_.model == WorkerRule::Model::pulled ? pulled(seat)
                         : steps_recorded_                        ? seat.own.data()
                                                                  : models_[node];
    WorkerStep step{.worker = node,
                    .k = its.number,
                    .view = {theta, seat.granted[0].t},
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
  const float* pulled(const Seat& seat) {
    return shards_.assembled([&](std::size_t s) { return seat.granted[s].pulled.data(); }, whole_);
  }
  void copy_own(Node node) {
    seats_[node].own.assign(models_[node], models_[node] + source_.dimension());
  }

  ReplayedPart part(Node node) {
    const Seat& seat = seats_[node];
    const std::uint64_t read = peers_ ? steps_ : seat.granted[0].t;
    return {node,
            {.outcome = trace::Outcome::published, .k = lease(seat).number, .t_read = read},
            seat.loss,
            1};
  }

  void grant(Grant grant) override {
    const Node node = grant.node;
    Seat& seat = seats_[node];
    if (telling_ == 0 && grant.lease.count > 0) {
      batches_->hold(grant.lease.first, grant.lease.count);
    }
    seat.granted[telling_] = std::move(grant);
    if (telling_ > 0) return;
    seat.steps = 0;
    const bool has_rows = rows_.holder() && lease(seat).count > 0;
    if (has_rows) looks_up_ ? let_go(seat) : pull_rows(seat);
    seat.taken = false;
    if (!steps_recorded_) return;
    take(seat);
    copy_own(node);
  }
  void pull_rows(Seat& seat) {
    const modes::Lease& its = lease(seat);
    batches_->fill_span(its.first, its.count, seat.batch);
    rows_.holder()->pull(seat.batch.view, seat.pulled);
  }
  void let_go(Seat& seat) { rows_.holder()->release(seat.pulled.keys); }
  // By its worker's model, which is as it was where the grant has never reached that.
  void take(Seat& seat) {
    if (rule_.model != WorkerRule::Model::own || std::exchange(seat.taken, true)) return;
    for (std::size_t s = 0; s < seat.granted.size(); ++s) {
      models_.take(seat.granted[s], shards_.spans(s));
      seat.granted[s].pulled.release();
    }
  }
  void updating(std::span<const std::uint64_t> tickets, const float* mean, double factor) override {
    const bool another = std::exchange(updated_, true) && telling_ > leads_;
    if (steps_recorded_) return;
    if (!another) begin_update(tickets);
    result_.gradient.resize(mean ? source_.dimension() : 0);
    if (!mean) return;
    part_.assign(mean, mean + shards_.size(telling_));
    for (float& value : part_) value = static_cast<float>(value * factor);
    shards_.scatter(telling_, part_.data(), result_.gradient.data());
  }
  // By the first of several servers that has any part of it.
  void begin_update(std::span<const std::uint64_t> tickets) {
    leads_ = telling_;
    for (std::size_t s = 0; s < shards_.size(); ++s) {
      before_[s].release();
      before_[s] = shards_[s].holder().pull();
    }
    result_.last.clear();
    for (const std::uint64_t ticket : tickets) {
      ReplayedPart& one = result_.last.emplace_back(pushed_.at(ticket));
      one.record.staleness = before_[0].t() - one.record.t_read;
    }
    settled_ = 0;
    result_.gradient.clear();
  }
  void settled(Node node, const Publication& publication) override {
    if (telling_ != (updated_ ? leads_ : 0)) return;
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
  const Trace& trace_;
  const bool looks_up_;
  const std::unique_ptr<const BatchSource> batches_;
  const Reading reading_;
  const std::unique_ptr<Workspace> workspace_;
  ServedRows rows_;
  Shards shards_;
  const MissedParts missed_;
  ParameterServer& server_;  // the first
  const WorkerRule rule_;
  const bool peers_;
  const bool steps_recorded_;
  OwnModels models_;
  std::vector<Seat> seats_;
  std::map<std::uint64_t, ReplayedPart> pushed_;  // by ticket, since the last update
  // Of a push, for each of several servers.
  struct Part {
    AlignedArray<float> values;
    RowPush rows;
  };
  std::vector<Part> parts_;
  std::vector<RowPush*> row_pushes_;
  AlignedArray<float> whole_;  // of parts
  std::vector<float> part_;
  Pins before_;                          // of the servers' last update
  std::size_t settled_ = 0;              // of its parts
  bool updated_ = false;                 // by the event that is handled
  std::size_t telling_ = 0, leads_ = 0;  // which server hears it, and was the first to update
  std::uint64_t events_ = 0;             // that all have heard
  std::uint64_t steps_ = 0;              // that are recorded
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
  ModeReplayer replayer(source, data, machine, context, tables, trace, options);
  const auto recorded =
      Audit(machine, replayer.server(), options).count(trace, options.interrupted);
  if (!recorded) return {.interrupted = true};
  require_recorded(options, *recorded);
  // Rows that are looked up behind the last update may take the place of others.
  const bool whole = options.looks_up && options.until >= *recorded;
  Replayed result = replayer.run(whole ? ReplayOptions::kAll : options.until);
  compare_with_end(result, trace, options);
  return result;
}

}  // namespace leashed
