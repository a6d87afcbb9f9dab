#include "leashed/modes/policy_threads.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "leashed/base/archive.h"
#include "leashed/base/clock.h"
#include "leashed/base/flags.h"
#include "leashed/base/team.h"
#include "leashed/data/make_batches.h"
#include "leashed/data/reading.h"
#include "leashed/engine/executor.h"
#include "leashed/engine/pause.h"
#include "leashed/engine/run.h"
#include "leashed/engine/saver.h"
#include "leashed/engine/watched_run.h"
#include "leashed/modes/mode_state.h"
#include "leashed/modes/mode_worker.h"
#include "leashed/server/own_models.h"
#include "leashed/server/served_rows.h"
#include "leashed/server/shared_moment.h"
#include "leashed/staleness/statistics.h"

namespace leashed {
namespace {

using modes::Event;
using modes::Lease;
using modes::Node;
using modes::WorkerRule;
using Clock = std::chrono::steady_clock;

constexpr double kLook = 0.01;  // seconds until what waits for rows is looked at again
constexpr std::int64_t kMost = std::int64_t{1} << 62;  // nanoseconds that runs may have taken

std::int64_t in_ns(double seconds) {
  return seconds < 9e9 ? std::llround(seconds * 1e9) : std::numeric_limits<std::int64_t>::max();
}

class PolicyThreads final : ModeServer, Sink, Observed, public Saver {
 public:
  PolicyThreads(const GradientSource& source, const DatasetView& data,
                const modes::ServerPolicy& machine, const DisciplineContext& context,
                const ModeTrainOptions& options)
      : options_(options),
        stream_(options.stream ? options.stream->stream : nullptr),
        batches_(make_batches(data, options.batch_size, options.seed, options.stream, false,
                              options.terms)),
        rows_(source, options.tables, context.t),
        server_(machine, context, rows_.holder()),
        rule_(server_.rule()),
        looked_at_(!server_.has_global_model()),
        met_(!server_.holds()),
        models_(server_, context),
        layout_(Updater(context).layout()),
        statistics_(context.staleness.statistics()),
        steps_(context.t),
        run_(source, data, *this, options.until, options.workers, options.batch_size,
             rows_.readers(), Counting::Updates::by_server),
        pause_(options.workers, options.pause_every, options.judges),
        seats_(options.workers) {
    run_.observe(options.metrics, options.observers);
    run_.pause = &pause_;
    OwnModels* const unseen =
        rule_.model == WorkerRule::Model::own && !looked_at_ ? &models_ : nullptr;
    ModeServer& server = *this;
    workers_.reserve(seats_.size());
    for (Node node = 0; node < seats_.size(); ++node) {
      Seat& seat = seats_[node];
      seat.lane.number = node;
      seat.lane.gradient = AlignedArray<float>(source.dimension());
      if (met_) seat.own.resize(source.dimension());
      workers_.emplace_back(run_, server, rule_, unseen, seat.lane);
    }
    for (const auto& [seconds, argument] : options.commands) {
      due_.emplace(in_ns(seconds), Event{Event::Kind::command, 0, 0, 0, argument});
    }
    if (options.pause_every > 0) multiple_ = context.t / options.pause_every;
    if (options.from && !options.from->mode.words.empty()) {
      Archive archive(options.from->mode);
      visit(archive);
      archive.finish();
      find_leases(archive);
    }
    run_.stop.on_stop([this] {
      if (stream_) stream_->stop();
      for (Seat& seat : seats_) seat.flags.raise(kStopped);
    });
  }

  Run& run() { return run_; }
  const ModeCounts& counts() const { return server_.counts(); }

  void start_clock() { start_ = Clock::now() - std::chrono::nanoseconds(begun_ns_); }
  std::uint64_t first_example() const { return first_example_; }
  std::optional<Checkpoint> take(double initial_loss) override;
  // What a worker's thread does. Throws nothing.
  void work(Node node) { workers_[node].work(); }
  // Seconds until the mode is to be told something; and tells it what is due.
  double until_due();
  void tell_due();

 private:
  enum : std::uint32_t { kGranted = 1, kEnded = 2, kStopped = 4, kAsked = 8, kPaused = 16 };

  // A worker's. What is not said otherwise its own thread alone touches.
  struct Seat {
    Flags flags;
    bool waits = false;  // under the lock: it has asked, and nothing is granted to it yet
    // Written by who grants, before the flag is raised.
    Grant granted{};
    Lane lane;
    std::vector<float> own;  // of peers: its model when it began the step
    // Of a model over tables what is pulled is written with the grant too.
    PulledRows pulled;
    ShownRows shown;
    AlignedArray<float> row_gradients;

    void visit(Archive& archive) {
      WorkerState state{granted.n, granted.c, granted.t, lane.taken, lane.done};
      archive(state);
      granted.n = state.n;
      granted.c = state.c;
      granted.t = state.t;
      lane.taken = state.taken;
      lane.done = state.done;
    }
  };
  struct Span {
    std::uint64_t begin, end;
  };

  // Waits in a pause, where there is one; the seconds.
  double pass(Node node, std::uint64_t next = 0) {
    const double seconds = pause_.pass(run_.stop, next);
    telemetry(node).waiting_seconds += seconds;
    return seconds;
  }
  WorkerTelemetry& telemetry(Node node) { return run_.counting.of(node); }
  // The pass over the data that a lease begins in, from the run's beginning.
  std::uint64_t pass_of(const Lease& lease) const {
    const std::uint64_t rows = stream_ ? stream_->pass_rows() : run_.data.rows;
    return rows == 0 ? 0 : lease.first / rows - std::min(lease.first, first_example_) / rows;
  }
  // Waits until the passes before that of its lease have been judged.
  void end_pass(Node node);

  void begin(Lane& lane) override;
  bool await(Lane& lane) override;
  void taken(Lane& lane) override { seats_[lane.number].granted.pulled.release(); }
  void read(Lane& lane, std::uint64_t first, std::size_t count) override;
  bool step(Lane& lane, bool last) override;
  void push(Lane& lane) override;
  void leave(Lane& lane) override;

  // Examples that are to be there before anything is told to the server.
  std::uint64_t wanted() const {
    return server_.examples_leased() + seats_.size() * server_.largest_lease();
  }
  void pause();

  // While no worker changes anything: what is neither the parameters that are held, nor the rule's
  // state beside them, nor the policy's.
  void visit(Archive& archive);
  // After that: what is still to be trained on.
  void find_leases(const Archive& archive);
  // Of a stream: rows that were trained on lie between others.
  void pass_over();

  bool all_there() const { return !stream_ || ended_ || wanted() <= there_; }
  // The lock, once that is so.
  std::unique_lock<std::mutex> turn(Node node);

  // Under the lock.
  // There are so many examples, or `most`, where these are fewer.
  void know(std::uint64_t there, std::uint64_t most);
  void ask(Node node);
  // Of what is in its seat.
  void hand_over(Node node);
  void grant_again(Node node);
  void pull_rows(Seat& seat);
  // Whether the server has heard it.
  bool tell(const Event& event, const Payload* payload = nullptr);
  void handle(const Event& event, const Payload* payload, std::int64_t ns);
  void count();  // whether the updates are as many as were asked for
  std::int64_t elapsed_ns() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count();
  }
  std::uint64_t count_updates() { return met_ ? steps_ : server_.holder().pull().t(); }

  void grant(Grant grant) override;
  void wake(Time at) override;
  void meet(std::span<const Node> nodes, Node) override { models_.meet(nodes); }
  void end(Node node) override;
  void settled(Node node, const Publication& publication) override;
  void updating_rows() override { spent_.since = now(); }
  void updated_rows() override { spent_.updating += now() - spent_.since; }
  void working(std::size_t parts) override;

  void with_snapshot(const std::function<void(const float* theta, std::uint64_t t)>& f) override;
  std::uint64_t updates() override;
  std::size_t live_vectors() const override { return server_.holder().live_vectors(); }
  std::size_t peak_vectors() const override { return server_.holder().peak_vectors(); }

  void copy_own(Node node) {
    std::copy_n(models_[node], run_.source.dimension(), seats_[node].own.data());
  }

  const ModeTrainOptions& options_;
  NumberedRows* const stream_;  // null: there is none
  const std::unique_ptr<const BatchSource> batches_;
  Clock::time_point start_{};

  std::mutex mutex_;
  // Under the lock. Versions are pinned and looked at without it, and so are copies of rows.
  ServedRows rows_;
  ParameterServer server_;
  const WorkerRule rule_;
  const bool looked_at_;  // workers' own models, by others than their workers
  const bool met_;        // and changed by them
  OwnModels models_;      // where nobody else looks at them, each by its worker alone, without it
  const std::size_t helpers_ = processors() - 1;
  std::multimap<std::int64_t, Event> due_;
  const Layout layout_;
  const StalenessStatistics* const statistics_;
  std::uint64_t steps_;         // of all models that meet
  std::uint64_t multiple_ = 0;  // of the updates between checkpoints, that was reached last
  std::int64_t begun_ns_ = 0;   // the time at the beginning
  // And the examples of which all before have been trained on, and what has been of those behind.
  std::uint64_t first_example_ = 0;
  std::vector<Span> trained_;
  std::uint64_t there_ = 0;  // examples of the stream, at least
  bool ended_ = false;       // and no others, as the mode has been told
  // Seconds in rows of tables, by who has the lock: their updates, and finding and copying them.
  struct {
    double updating = 0, reading = 0, since = 0;
  } spent_;

  std::vector<float> mean_;  // of models, for the one who looks
  Run run_;
  Pause pause_;
  std::vector<Seat> seats_;
  std::vector<ModeWorker> workers_;
};

void PolicyThreads::begin(Lane& lane) {
  const Node node = lane.number;
  if (node == 0) pass_over();
  const auto lock = turn(node);
  spent_ = {};
  server_.lease(node) ? grant_again(node) : ask(node);
  // There may be more examples than before, for which somebody waits.
  if (options_.from) tell({Event::Kind::join, node});
  telemetry(node).read_seconds += spent_.reading;
}

void PolicyThreads::leave(Lane& lane) {
  Seat& seat = seats_[lane.number];
  {
    const std::lock_guard lock(mutex_);  // another may be granting to this one
    seat.granted.pulled.release();
    if (RowHolder* const rows = rows_.holder()) rows->release(seat.pulled.keys);
  }
  pause_.leave();
}

std::unique_lock<std::mutex> PolicyThreads::turn(Node node) {
  std::unique_lock lock(mutex_);
  while (!all_there() && !run_.stop.stopped()) {
    const std::uint64_t most = wanted();
    lock.unlock();
    double begun = now();
    std::optional<std::uint64_t> found;
    while (!(found = stream_->rows(most, kLook))) begun += pass(node);
    const std::uint64_t there = *found;
    telemetry(node).data_seconds += now() - begun;
    telemetry(node).sampling_seconds += now() - begun;
    lock.lock();
    know(there, most);
  }
  return lock;
}

void PolicyThreads::know(std::uint64_t there, std::uint64_t most) {
  there_ = std::max(there_, there);
  if (there == most || ended_ || run_.stop.stopped()) return;
  if (const std::uint64_t leased = server_.examples_leased(); there < leased) {
    throw Error("the stream has " + std::to_string(there) + " examples, and " +
                std::to_string(leased) +
                " of it were handed out in the run that is resumed; give the same stream");
  }
  ended_ = true;
  tell({Event::Kind::data_end, 0, there});
}

bool PolicyThreads::await(Lane& lane) {
  const Node node = lane.number;
  Seat& seat = seats_[node];
  std::uint32_t flags = 0;
  bool passed = false;  // with its grant; pauses that come one upon another let it compute then
  if (pause_.holds(Pause::kAny)) seat.flags.raise(kPaused);  // as others were told before
  while (((flags = seat.flags.wait()) & kStopped) == 0) {
    if ((flags & kPaused) != 0 && !passed) {
      seat.flags.lower(kPaused);
      const bool granted = (flags & kGranted) != 0;
      passed = pause_.pass(run_.stop, granted ? 0 : Pause::kAny) > 0 && granted;
    } else if (flags == kAsked) {
      seat.flags.lower(kAsked);
      server_.work().help();
    } else {
      break;
    }
  }
  if ((flags & (kStopped | kEnded)) == 0) end_pass(node);
  if ((flags & (kStopped | kEnded)) != 0 || run_.stop.stopped()) return false;
  seat.flags.lower(kGranted | kAsked);
  return true;
}

// Whoever waits for a grant waits as well, and comes to know of it by his flags.
void PolicyThreads::end_pass(Node node) {
  const std::uint64_t next = pass_of(seats_[node].granted.lease);
  if (!pause_.holds(next)) return;
  pause_.reach(next);
  for (Seat& seat : seats_) seat.flags.raise(kPaused);
  pause_.pass(run_.stop, next);
}

void PolicyThreads::read(Lane& lane, std::uint64_t first, std::size_t count) {
  Seat& seat = seats_[lane.number];
  if (RowHolder* const held = rows_.holder()) {
    held->show(seat.pulled, lane.batch.view, seat.shown, seat.row_gradients);
  } else {
    batches_->fill_span(first, count, lane.batch);
  }
}

bool PolicyThreads::step(Lane& lane, bool last) {
  const Node node = lane.number;
  const std::lock_guard lock(mutex_);
  if (run_.stop.stopped()) return false;
  models_.step(node, lane.gradient.data());
  if (options_.listener) options_.listener->stepped(node);
  if (!met_) return true;
  ++steps_;
  count();
  if (!last) copy_own(node);
  return true;
}

void PolicyThreads::push(Lane& lane) {
  const Node node = lane.number;
  Seat& seat = seats_[node];
  if (rule_.sends == WorkerRule::Sends::model && !met_) {
    std::copy_n(lane.theta, run_.source.dimension(), lane.gradient.data());
  }
  Payload payload{&lane.gradient, seat.granted.lease.count};
  if (rows_.holder()) {
    payload.rows = &seat.pulled.keys;
    payload.row_gradients = &seat.row_gradients;
  }
  seat.granted.pulled.release();
  WorkerTelemetry& counted = telemetry(node);
  const double asked = now(), read = counted.data_seconds;
  const auto lock = turn(node);
  const double begun = now();
  spent_ = {};
  const Lease lease = seat.granted.lease;
  const std::uint64_t late = server_.counts().late;
  if (!tell({Event::Kind::push, node, lease.ticket, seat.granted.version}, &payload)) return;
  batches_->let_go(lease.first, lease.count, server_.counts().late == late);
  const double update = std::max(0.0, now() - begun - spent_.updating - spent_.reading);
  counted.waiting_seconds += begun - asked - (counted.data_seconds - read);
  counted.update_seconds.add(update);
  counted.attempt_seconds.add(update);
  if (!run_.stop.stopped()) ask(node);
  counted.row_seconds += spent_.updating;
  counted.read_seconds += spent_.reading;
}

void PolicyThreads::ask(Node node) {
  tell({Event::Kind::pull, node});
  seats_[node].waits = !seats_[node].flags.any();
}

double PolicyThreads::until_due() {
  const std::lock_guard lock(mutex_);
  if (due_.empty() || run_.stop.stopped()) return std::numeric_limits<double>::infinity();
  const double due = 1e-9 * static_cast<double>(due_.begin()->first - elapsed_ns());
  return all_there() ? due : std::max(due, kLook);
}

void PolicyThreads::tell_due() {
  const std::lock_guard lock(mutex_);
  try {
    const std::int64_t ns = elapsed_ns();
    while (!due_.empty() && due_.begin()->first <= ns && !run_.stop.stopped()) {
      if (const std::uint64_t most = wanted(); !all_there()) {
        const std::optional<std::uint64_t> there = stream_->rows(most, 0);
        if (!there) break;
        know(*there, most);
        continue;
      }
      const Event event = due_.begin()->second;
      due_.erase(due_.begin());
      handle(event, nullptr, ns);
    }
  } catch (...) {
    run_.fail(std::current_exception());
  }
}

// What an exception leaves half done nobody uses: the run is stopped before the lock is given back.
bool PolicyThreads::tell(const Event& event, const Payload* payload) {
  if (run_.stop.stopped()) return false;
  try {
    handle(event, payload, elapsed_ns());
  } catch (...) {
    run_.fail(std::current_exception());
  }
  return true;
}

void PolicyThreads::handle(const Event& event, const Payload* payload, std::int64_t ns) {
  if (options_.listener) options_.listener->heard(event, {ns});
  server_.handle(event, payload, {ns}, *this);
  count();
}

// Not pushes alone make updates: a lease that runs out closes the round of those who have pushed.
void PolicyThreads::count() {
  const std::uint64_t updates = count_updates();
  if (updates >= run_.until.updates) run_.stop.stop(StopReason::updates);
  if (options_.pause_every == 0) return;
  const std::uint64_t multiple = updates / options_.pause_every;
  if (std::exchange(multiple_, multiple) != multiple) pause();
}

void PolicyThreads::pause() {
  pause_.ask();
  for (Seat& seat : seats_) seat.flags.raise(kPaused);
}

void PolicyThreads::grant(Grant grant) {
  if (grant.lease.count == 0) return;  // before its end, after which nobody looks at its model
  const Node node = grant.node;
  Seat& seat = seats_[node];
  seat.granted = std::move(grant);
  seat.lane.done = 0;
  seat.lane.taken = looked_at_;
  if (looked_at_) models_.take(seat.granted);
  hand_over(node);
}

void PolicyThreads::hand_over(Node node) {
  Seat& seat = seats_[node];
  batches_->hold(seat.granted.lease.first, seat.granted.lease.count);
  if (met_) copy_own(node);
  seat.lane.lease = seat.granted.lease;
  seat.lane.pulled = pulled_model(seat.granted);
  seat.lane.theta = rule_.model == WorkerRule::Model::pulled ? seat.lane.pulled.values
                    : met_                                   ? seat.own.data()
                                                             : models_[node];
  if (rows_.holder()) pull_rows(seat);
  seat.waits = false;
  seat.flags.raise(kGranted);
}

// To whom a lease was granted before the checkpoint that this run goes on from, and is its still.
void PolicyThreads::grant_again(Node node) {
  Grant& granted = seats_[node].granted;
  granted.pulled = server_.holder().pull();
  if (!seats_[node].lane.taken) {
    granted.t = granted.pulled.t();
    server_.pulled_again(node, granted.t);
  }
  try {
    hand_over(node);
  } catch (...) {
    run_.fail(std::current_exception());
  }
}

void PolicyThreads::visit(Archive& archive) {
  std::uint64_t layout = kModeLayout;
  archive(layout);
  archive.require(layout == kModeLayout);
  std::int64_t ns = archive.reads() ? 0 : elapsed_ns();
  std::vector<DueEvent> due;
  for (const auto& [at, event] : due_) due.push_back({at, event});
  archive(ns, due, server_, models_);
  const bool keeps = rule_.steps_own && rule_.sends == WorkerRule::Sends::gradient;
  for (Node node = 0; node < seats_.size(); ++node) {
    Seat& seat = seats_[node];
    archive(seat);
    const auto its = server_.lease(node);
    if (!its) continue;  // or it has gone to another
    seat.granted.node = node;
    seat.granted.lease = its->lease;
    seat.granted.version = its->version;
    const std::uint32_t steps = steps_of(rule_, its->lease);
    archive.require(seat.lane.done <= steps && (seat.lane.taken || !looked_at_));
    AlignedArray<float>& gradient = seat.lane.gradient;
    if (keeps && seat.lane.done == steps) archive.vector(gradient.data(), gradient.size());
  }
  if (!archive.reads()) return;
  archive.require(ns >= 0 && ns <= kMost);
  begun_ns_ = ns;
  due_.clear();
  for (const DueEvent& one : due) due_.emplace(one.ns, one.event);
}

void PolicyThreads::find_leases(const Archive& archive) {
  std::vector<Lease> unfinished = server_.unfinished();
  std::ranges::sort(unfinished, {}, &Lease::first);
  const std::uint64_t leased = server_.examples_leased();
  first_example_ = unfinished.empty() ? leased : unfinished.front().first;
  std::uint64_t reached = first_example_;
  for (const Lease& lease : unfinished) {
    archive.require(lease.first >= reached);
    if (lease.first > reached) trained_.push_back({reached, lease.first});
    reached = lease.first + lease.count;
  }
  if (leased > reached) trained_.push_back({reached, leased});
}

void PolicyThreads::pass_over() {
  if (!stream_) return;
  Batch unused;
  const StreamBatches rows(*options_.stream, options_.batch_size, options_.seed);
  for (auto [begin, end] : trained_) {
    while (begin < end && !run_.stop.stopped()) {
      const std::uint64_t count = std::min<std::uint64_t>(options_.batch_size, end - begin);
      rows.fill_span(begin, count, unused);
      if (unused.view.size < count) return;  // as is found when others are asked for
      begin += count;
    }
  }
}

std::optional<Checkpoint> PolicyThreads::take(double initial_loss) {
  if (!pause_.still()) return pause(), std::nullopt;
  const std::lock_guard lock(mutex_);
  Checkpoint taken;
  taken.initial_loss = initial_loss;
  taken.position = {count_updates(), server_.examples_leased() / options_.batch_size};
  taken.assign({server_.holder().held(), taken.position.updates}, layout_);
  if (looked_at_) std::copy_n(models_.mean(), layout_.dimension, taken.vectors.data());
  if (statistics_) statistics_->save(taken.staleness);
  taken.running = run_.source.running();
  Archive archive(taken.mode);
  visit(archive);
  return taken;
}

// No more than have processors.
void PolicyThreads::working(std::size_t parts) {
  std::size_t wanted = std::min(parts, helpers_ + 1) - 1;
  for (std::size_t i = 0; i < seats_.size() && wanted > 0; ++i) {
    if (!seats_[i].waits) continue;
    seats_[i].flags.raise(kAsked);
    --wanted;
  }
}

// Those of the whole lease: who shares rows with others makes no local steps.
void PolicyThreads::pull_rows(Seat& seat) {
  const double begun = now();
  const Lease& lease = seat.granted.lease;
  batches_->fill_span(lease.first, lease.count, seat.lane.batch);
  rows_.holder()->pull(seat.lane.batch.view, seat.pulled);
  spent_.reading += now() - begun;
}

void PolicyThreads::wake(Time at) {
  const std::int64_t ns = shared_moment(at, elapsed_ns());
  const auto [first, last] = due_.equal_range(ns);
  const bool shared = std::any_of(
      first, last, [](const auto& due) { return due.second.kind == Event::Kind::wake; });
  if (!shared) due_.emplace(ns, Event{Event::Kind::wake});
}

void PolicyThreads::end(Node node) {
  run_.stop.finish(StopReason::epochs);
  seats_[node].waits = false;
  seats_[node].flags.raise(kEnded);
}

void PolicyThreads::settled(Node node, const Publication& publication) {
  run_.observers.published({.worker = node}, publication);
}

void PolicyThreads::with_snapshot(
    const std::function<void(const float* theta, std::uint64_t t)>& f) {
  if (!looked_at_) {
    const ParameterVector::Pin latest = server_.holder().pull();
    return f(latest.data(), latest.t());
  }
  std::uint64_t t = 0;
  {
    const std::lock_guard lock(mutex_);
    const float* const mean = models_.mean();
    mean_.assign(mean, mean + run_.source.dimension());
    t = count_updates();
  }
  f(mean_.data(), t);
}

std::uint64_t PolicyThreads::updates() {
  const std::lock_guard lock(mutex_);
  return count_updates();
}

// The workers' threads; the mode is told what is due by the thread that waits for them.
class PolicyExecutor final : public Executor {
 public:
  explicit PolicyExecutor(PolicyThreads& training)
      : training_(training), threads_(training.run(), [&training](std::size_t worker) {
          training.work(static_cast<Node>(worker));
        }) {}

  bool wait(double seconds) override {
    const bool ended = threads_.wait(std::max(0.0, std::min(seconds, training_.until_due())));
    if (!ended) training_.tell_due();
    return ended;
  }

 private:
  PolicyThreads& training_;
  ThreadExecutor threads_;
};

}  // namespace

ModeTrainResult train_mode(const GradientSource& source, const DatasetView& data,
                           const DatasetView* validation, const modes::ServerPolicy& machine,
                           const DisciplineContext& context, const ModeTrainOptions& options,
                           const TrainCallbacks& callbacks) {
  PolicyThreads training(source, data, machine, context, options);
  training.start_clock();  // of what is kept before workers begin
  WatchedRun watched(training.run(), validation, &training,
                     {options.evaluate_every, options.checkpoint_every},
                     options.from ? options.from->initial_loss : std::nan(""), callbacks);
  const Reading reading(options.stream, training.first_example());
  watched.train([&] {
    training.start_clock();
    return std::make_unique<PolicyExecutor>(training);
  });
  ModeTrainResult result;
  result.training = watched.end([&](std::uint64_t) { return options.until.batches; });
  result.counts = training.counts();
  result.training.worker_updates = result.counts.worker_kept;
  result.training.rows = result.counts.rows;
  return result;
}

}  // namespace leashed
