#include "leashed/simulation/simulate.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "leashed/cluster/averaging.h"
#include "leashed/engine/step.h"
#include "leashed/server/row_aggregator.h"
#include "leashed/server/served_rows.h"
#include "leashed/simulation/durations.h"
#include "leashed/simulation/played_data.h"
#include "leashed/simulation/protocol.h"
#include "leashed/simulation/timeline.h"
#include "leashed/simulation/virtual_clock.h"
#include "leashed/simulation/watch.h"
#include "leashed/simulation/watched_gradient.h"

namespace leashed {
namespace {

// In the order of one moment: pushes come before pulls
// (docs/readings.md#state-machines-and-time).
enum class Kind : std::uint8_t {
  step,      // of an update or a read under way
  computed,  // a gradient
  sync,      // something of a synchronisation
  row_push,  // to an embedding server
  row_ask,   // and its answer
  fetched,   // a batch; it reads
  ready,     // for a batch
  evaluate,
};

using TrainerReplicas = std::span<const std::unique_ptr<Discipline>>;

class Simulation final : public SyncStage {
 public:
  Simulation(const GradientSource& source, const DatasetView& data, const DatasetView* validation,
             const Choice& choice, TrainerReplicas replicas, const DisciplineContext& context,
             const SimulationOptions& options, const TrainCallbacks& callbacks,
             const TrainersPlan& plan)
      : source_(source),
        replicas_(replicas),
        options_(options),
        plan_(plan),
        lockstep_(replicas.front()->lockstep()),
        compute_(make_durations(options.compute, seed_of(options.seed, kCompute))),
        update_(make_durations(options.update, seed_of(options.seed, kUpdate))),
        copy_(make_durations(options.copy, seed_of(options.seed, kCopy))),
        end_(in_ns(options.until.seconds)),
        rows_(source, options.tables),
        workers_(plan.count * options.workers),
        watch_(source, data, validation, options.until, callbacks, rows_.readers(), workers_.size(),
               Counting::Updates::by_disciplines, options.observers),
        data_(data, options, watch_),
        gradient_(source, watch_) {
    if (rows_.holder() && lockstep_) row_steps_.emplace(*rows_.holder(), false);
    result_.updating_seconds.resize(workers_.size() + 1);
    TrainerCounts& counts = result_.trainers;
    counts.iterations.resize(plan.count);
    counts.rounds.resize(plan.count);
    counts.seconds.resize(plan.count);
    counts.row_seconds.resize(plan.count);
    if (rows_.holder() && plan.rows.count > 0) servers_.emplace(plan.rows, options.tables);
    trainers_.reserve(plan.count);
    for (std::uint32_t t = 0; t < plan.count; ++t) {
      trainers_.push_back(std::make_unique<Trainer>(*this, t, choice, context));
    }
    sync_ =
        make_played_sync(plan, context.initial, source.dimension(), options.workers, *this, counts);
  }

  SimulationResult run() {
    const auto attached = source_.attach();
    evaluate();
    for (std::uint32_t w = 0; w < workers_.size(); ++w) {
      timeline_.enter({0, Kind::ready, w});
    }
    if (sync_) sync_->begin();
    enter_evaluation();
    while (!watch_.stop.stopped() && !timeline_.empty() && (under_way_ > 0 || flying_ > 0)) {
      play(timeline_.take());
    }
    return end();
  }

  std::int64_t now() const override { return now_; }
  Discipline& replica(std::size_t trainer) override { return *replicas_[trainer]; }
  void sync_at(std::int64_t ns, std::uint32_t what) override {
    timeline_.enter({ns, Kind::sync, what});
  }
  void resume(std::uint32_t worker) override {
    Player& player = workers_[worker];
    telemetry(worker).waiting_seconds += in_seconds(now_ - player.since);
    timeline_.enter({now_, Kind::ready, worker});
  }
  void not_finite() override { watch_.stop.stop(StopReason::not_finite); }

 private:
  struct Player {
    AlignedArray<float> gradient;                          // made when it is first needed
    std::uint64_t k = 0;                                   // the batch under way
    std::uint64_t gradients = 0, updates = 0, copies = 0;  // drawn
    View view{};
    // With embedding servers of the batch in hand and of the one ahead, and what has to come.
    PulledRows rows[2];
    std::vector<RowServers::Part> parts[2];
    std::size_t missing[2] = {0, 0};
    std::uint32_t slot = 0;             // which of these is in hand
    std::uint64_t next = 0;             // the batch ahead
    bool begun = false, ahead = false;  // whether there is one
    bool waits = false;                 // for rows
    AlignedArray<float> row_gradients;  // between its gradient and its update
    bool computing = false;
    bool may_publish = false;  // an update that it has claimed
    std::int64_t since = 0;
  };

  // The workers of one trainer, by the numbers that they have in it.
  class Trainer final : public Stage {
   public:
    Trainer(Simulation& all, std::uint32_t index, const Choice& choice,
            const DisciplineContext& context)
        : all_(all),
          index_(index),
          first_(index * static_cast<std::uint32_t>(all.options_.workers)),
          protocol_(make_protocol(choice, context, all.replica(index), *this)) {}

    Protocol& protocol() { return *protocol_; }
    std::uint32_t index() const { return index_; }
    std::uint32_t own(std::uint32_t worker) const { return worker - first_; }

    // In lockstep: of the step that some workers have begun, its first batch, and how many have yet
    // to begin.
    std::uint64_t step = 0;
    std::size_t missing = 0;
    std::vector<Aggregator::Part> step_rows;  // of those that have pushed theirs

    std::int64_t now() const override { return all_.now_; }
    std::int64_t update_time(std::uint32_t worker) override {
      return (*all_.update_)(first_ + worker, all_.workers_[first_ + worker].updates++);
    }
    std::int64_t copy_time(std::uint32_t worker) override {
      return (*all_.copy_)(first_ + worker, all_.workers_[first_ + worker].copies++);
    }
    void step_at(std::int64_t ns, std::uint32_t worker) override {
      all_.timeline_.enter({ns, Kind::step, first_ + worker});
    }
    void has_read(std::uint32_t worker, const View& view) override {
      all_.has_read(first_ + worker, view);
    }
    void updated(std::uint32_t worker, const Publication& publication) override {
      all_.updated(first_ + worker, publication);
    }

   private:
    Simulation& all_;
    const std::uint32_t index_, first_;
    const std::unique_ptr<Protocol> protocol_;
  };

  Trainer& trainer_of(std::uint32_t worker) { return *trainers_[worker / options_.workers]; }

  void has_read(std::uint32_t worker, const View& view) {
    Player& player = workers_[worker];
    player.view = view;
    player.computing = true;
    watch_.observers.read(step_of(worker));
    player.since = now_;
    if (servers_) {
      if (!looks_ahead()) ask(worker, player.slot, player.k);
      player.waits = player.missing[player.slot] > 0;
      if (player.waits) return;
    } else if (rows_.holder()) {
      data_.batches().fill(player.k, batch_);
      rows_.holder()->pull(batch_.view, player.rows[0]);
    }
    begin_gradient(worker);
  }
  void begin_gradient(std::uint32_t worker) {
    Player& player = workers_[worker];
    timeline_.enter(
        {after(now_, (*compute_)(worker, player.gradients++, now_)), Kind::computed, worker});
  }

  // What happens at embedding servers is numbered in a moment's `life`: of a look-up by server,
  // slot and stage, of a push by its number and stage.
  enum RowStage : std::uint32_t { arrives, is_done, is_there, kStages };

  bool looks_ahead() const { return servers_ && plan_.rows.look_ahead > 0; }
  // Each server copies its rows when its turn comes; where they are is found now.
  void ask(std::uint32_t worker, std::uint32_t slot, std::uint64_t k) {
    Player& player = workers_[worker];
    data_.batches().fill(k, batch_);
    rows_.holder()->pull(batch_.view, player.rows[slot]);
    servers_->divide(player.rows[slot].keys, player.parts[slot]);
    player.missing[slot] = servers_->serving();
    for (std::uint32_t s = 0; s < servers_->count(); ++s) {
      if (!servers_->serves(s)) continue;
      timeline_.enter({servers_->ask(now_, s, player.parts[slot][s]), Kind::row_ask, worker,
                       (s * 2 + slot) * kStages});
    }
  }
  void play_ask(const Moment<Kind>& moment) {
    Player& player = workers_[moment.worker];
    const std::uint32_t slot = moment.life / kStages % 2, server = moment.life / kStages / 2;
    const RowServers::Part& part = player.parts[slot][server];
    const auto next = [&](std::int64_t ns) {
      timeline_.enter({ns, Kind::row_ask, moment.worker, moment.life + 1});
    };
    switch (moment.life % kStages) {
      case arrives:
        return next(servers_->work(now_, server, part));
      case is_done:
        rows_.holder()->renew(player.rows[slot], servers_->placement(), server);
        return next(servers_->answer(now_, server, part));
      default:
        if (--player.missing[slot] > 0 || slot != player.slot || !player.waits) return;
        player.waits = false;
        const std::uint32_t trainer = trainer_of(moment.worker).index();
        result_.trainers.row_seconds[trainer] += in_seconds(now_ - player.since);
        player.since = now_;
        begin_gradient(moment.worker);
    }
  }
  void send_rows(std::uint32_t worker, std::uint64_t t) {
    Player& player = workers_[worker];
    std::vector<RowPush*> pushes;
    for (std::uint32_t s = 0; s < servers_->count(); ++s) {
      if (!servers_->serves(s)) {
        pushes.push_back(&nowhere_);
        continue;
      }
      if (free_.empty()) {
        free_.push_back(static_cast<std::uint32_t>(in_flight_.size()));
        in_flight_.emplace_back();
      }
      const std::uint32_t number = free_.back();
      free_.pop_back();
      Flying& flying = in_flight_[number];
      flying.server = s;
      flying.t = t;
      flying.part = player.parts[player.slot][s];
      pushes.push_back(&flying.push);
      ++flying_;
      timeline_.enter(
          {servers_->push(now_, s, flying.part), Kind::row_push, worker, number * kStages});
    }
    rows_.holder()->split(player.rows[player.slot].keys, player.row_gradients.data(),
                          servers_->placement(), pushes);
  }
  void play_push(const Moment<Kind>& moment) {
    const std::uint32_t number = moment.life / kStages;
    Flying& flying = in_flight_[number];
    if (moment.life % kStages == arrives) {
      return timeline_.enter({servers_->work(now_, flying.server, flying.part), Kind::row_push,
                              moment.worker, moment.life + 1});
    }
    telemetry(moment.worker)
        .rows.add(rows_.holder()->push(flying.push.keys, flying.push.gradients.data(), flying.t));
    servers_->settle(now_, flying.server);
    free_.push_back(number);
    --flying_;
  }

  void updated(std::uint32_t worker, const Publication& publication) {
    Player& player = workers_[worker];
    change_updating(-1);
    watch_.observers.published(step_of(worker), publication);
    if (rows_.holder()) push_rows(worker, publication);
    if (publication.published) player.may_publish = false;
    data_.let_go(player.k);
    player.since = now_;
    if (!sync_ || sync_->stepped(worker)) timeline_.enter({now_, Kind::ready, worker});
  }

  void play(const Moment<Kind>& moment) {
    if (moment.ns > end_ || moment.ns == std::numeric_limits<std::int64_t>::max()) {
      now_ = end_;
      return watch_.stop.stop(StopReason::seconds);
    }
    now_ = moment.ns;
    ++result_.events;
    switch (moment.kind) {
      case Kind::ready:
        begin(moment.worker);
        break;
      case Kind::fetched:
        read(moment.worker);
        break;
      case Kind::computed:
        compute(moment.worker);
        break;
      case Kind::step: {
        Trainer& trainer = trainer_of(moment.worker);
        trainer.protocol().step(trainer.own(moment.worker));
        break;
      }
      case Kind::sync:
        sync_->play(moment.worker);
        break;
      case Kind::row_push:
        play_push(moment);
        break;
      case Kind::row_ask:
        play_ask(moment);
        break;
      case Kind::evaluate:
        evaluate();
        enter_evaluation();
        break;
    }
    watch_.looked();
  }

  // The worker's next batch, as on a thread (engine/worker.cc): what is dropped has used up its
  // batch but not its update; in lockstep who is there first claims what all have in a step.
  bool claims(std::uint32_t worker) {
    Player& player = workers_[worker];
    Trainer& trainer = trainer_of(worker);
    if (trainer.missing == 0) {
      const std::size_t together = lockstep_ ? options_.workers : 1;
      if (!may_begin(player, together)) return false;
      trainer.step = std::exchange(next_batch_, next_batch_ + together);
      trainer.missing = together;
    }
    --trainer.missing;
    player.k = trainer.step + (lockstep_ ? trainer.own(worker) : 0);
    return true;
  }
  // With a batch ahead, whose rows are asked for.
  bool comes_to_next(std::uint32_t worker) {
    Player& player = workers_[worker];
    if (!player.begun) {
      player.begun = true;
      look_ahead(player);
      if (player.ahead) ask(worker, player.slot ^ 1, player.next);
    }
    if (!may_take(player, player.ahead)) return false;
    player.slot ^= 1;
    player.k = player.next;
    look_ahead(player);
    return true;
  }
  void look_ahead(Player& player) {
    player.ahead = has_batches(1);
    if (player.ahead) player.next = next_batch_++;
  }
  bool has_batches(std::size_t batches) {
    return next_batch_ < options_.until.batches && data_.has(next_batch_ + batches - 1);
  }
  bool may_begin(Player& player, std::size_t batches) {
    return may_take(player, has_batches(batches));
  }
  bool may_take(Player& player, bool there) {
    const StopRules& until = options_.until;
    if (!there) {
      const bool updates = !player.may_publish && next_update_ >= until.updates;
      return watch_.stop.finish(updates ? StopReason::updates : StopReason::epochs), false;
    }
    if (!player.may_publish && next_update_ >= until.updates) {
      return watch_.stop.finish(StopReason::updates), false;
    }
    if (!player.may_publish) ++next_update_;
    player.may_publish = true;
    return true;
  }

  void begin(std::uint32_t worker) {
    if (!(looks_ahead() ? comes_to_next(worker) : claims(worker))) {
      --under_way_;
      if (sync_) sync_->left(worker);
      return;
    }
    result_.trainers.drawn = in_seconds(now_);
    Player& player = workers_[worker];
    player.since = now_;
    const std::int64_t fetching = compute_->fetching(worker, player.gradients, now_);
    if (fetching == 0) return read(worker);
    timeline_.enter({after(now_, fetching), Kind::fetched, worker});
  }

  void read(std::uint32_t worker) {
    watch_.observers.claimed(step_of(worker));
    Player& player = workers_[worker];
    player.since = now_;
    if (looks_ahead() && player.ahead) ask(worker, player.slot ^ 1, player.next);
    Trainer& trainer = trainer_of(worker);
    trainer.protocol().read(trainer.own(worker));
  }

  void compute(std::uint32_t worker) {
    Player& player = workers_[worker];
    if (player.gradient.size() == 0) player.gradient = AlignedArray<float>(source_.dimension());
    WorkerStep step = step_of(worker);
    step.gradient = {player.gradient.data(), player.gradient.size()};
    const auto rows = [&] {
      data_.batches().fill(player.k, batch_);
      if (rows_.holder()) show_rows(player);
      step.set_batch(batch_);
    };
    const auto gradient = [&] {
      return gradient_(player.view.theta, batch_.view, player.gradient.data());
    };
    if (!leashed::compute(step, watch_.observers, watch_.stop, rows, gradient)) {
      return watch_.observers.abandoned(step, {.abandoned = true});
    }
    player.computing = false;
    watch_.observers.used(step);
    change_updating(1);
    Trainer& trainer = trainer_of(worker);
    ++result_.trainers.iterations[trainer.index()];
    trainer.protocol().update(trainer.own(worker), player.gradient.data());
  }

  // Memory for gradients is of those who need it now.
  void show_rows(Player& player) {
    if (!spare_.empty()) {
      std::swap(player.row_gradients, spare_.back());
      spare_.pop_back();
    }
    rows_.holder()->show(player.rows[player.slot], batch_.view, shown_, player.row_gradients);
  }
  // As a worker on a thread: also where theta's part was dropped or excluded; in lockstep one
  // update of what all of a trainer have for a row, by the last.
  void push_rows(std::uint32_t worker, const Publication& publication) {
    Player& player = workers_[worker];
    RowPublication& counts = telemetry(worker).rows;
    if (lockstep_) {
      std::vector<Aggregator::Part>& held = trainer_of(worker).step_rows;
      row_steps_->hold(worker, player.rows[0].keys, player.row_gradients);
      held.push_back({worker, 1.0});
      if (held.size() == options_.workers) {
        counts.add(row_steps_->apply(held, static_cast<double>(held.size()),
                                     updates_before(publication.t, publication.published)));
        held.clear();
      }
    } else {
      const std::uint64_t t = updates_before(publication.published ? publication.t : player.view.t,
                                             publication.published);
      if (servers_) {
        send_rows(worker, t);
      } else {
        counts.add(rows_.holder()->push(player.rows[0].keys, player.row_gradients.data(), t));
      }
    }
    std::swap(player.row_gradients, spare_.emplace_back());
  }

  // Those of all trainers, whose rows they are: a trainer counts its own, t.
  std::uint64_t updates_before(std::uint64_t t, bool published) {
    if (trainers_.size() == 1) return t;
    return published ? published_++ : published_;
  }

  WorkerTelemetry& telemetry(std::uint32_t worker) { return watch_.counting.of(worker); }
  // As far as it has come, of which the latest part has taken until now.
  WorkerStep step_of(std::uint32_t worker) const {
    const Player& player = workers_[worker];
    return {.worker = worker,
            .place = player.k,
            .k = player.k,
            .view = player.view,
            .seconds = in_seconds(now_ - player.since)};
  }

  void change_updating(int by) {
    result_.updating_seconds[updating_] += in_seconds(now_ - updating_since_);
    updating_since_ = now_;
    updating_ += static_cast<std::uint32_t>(by);
    if (result_.updating.size() < SimulationResult::kChanges) {
      result_.updating.emplace_back(in_seconds(now_), updating_);
    }
  }

  void enter_evaluation() {
    if (!std::isfinite(options_.evaluate_every)) return;
    const std::int64_t next =
        after(now_, std::max<std::int64_t>(1, in_ns(options_.evaluate_every)));
    timeline_.enter({next, Kind::evaluate, 0});
  }

  // Calls f with the output model as it is now, and the updates of all trainers.
  template <class F>
  void with_output(const F& f) {
    std::uint64_t updates = 0;
    const bool mean = plan_.mean && replicas_.size() > 1;
    if (mean) mean_.assign(source_.dimension(), 0.0f);
    for (const auto& replica : replicas_) {
      replica->with_snapshot([&](const float* theta, std::uint64_t t) {
        updates += t;
        for (std::size_t i = 0; i < mean_.size(); ++i) mean_[i] += theta[i];
      });
    }
    average(mean_, static_cast<std::uint32_t>(replicas_.size()));
    if (mean) return f(mean_.data(), updates);
    replicas_.front()->with_snapshot([&](const float* theta, std::uint64_t) { f(theta, updates); });
  }

  void evaluate() {
    with_output([&](const float* theta, std::uint64_t updates) {
      Evaluated e{};
      e.seconds = in_seconds(now_);
      e.updates = updates;
      e.live_vectors = workers_.size();
      for (const auto& replica : replicas_) e.live_vectors += replica->live_vectors();
      for (const WorkerTelemetry* worker : watch_.counting.all()) {
        e.gradients += worker->gradients.get();
        worker->staleness.merge_bins_into(e.staleness);
      }
      watch_.evaluate(theta, std::move(e));
    });
  }

  SimulationResult end() {
    sync_.reset();  // no round begins any more
    if (servers_) {
      result_.trainers.row_bytes_out = servers_->bytes_in();
      result_.trainers.row_bytes_in = servers_->bytes_out();
    }
    for (const auto& trainer : trainers_) trainer->protocol().end();
    for (std::uint32_t w = 0; w < workers_.size(); ++w) {
      const Trainer& trainer = trainer_of(w);
      if (workers_[w].computing && !lockstep_) replica(trainer.index()).withdraw(trainer.own(w));
    }
    change_updating(0);
    TrainResult& training = result_.training;
    const std::size_t d = source_.dimension();
    with_output([&](const float* theta, std::uint64_t updates) {
      training.parameters.assign(theta, theta + d);
      training.updates = updates;
    });
    const bool evaluated = watch_.evaluated_at(in_seconds(now_), training.updates);
    if (!watch_.interrupted() && !evaluated) evaluate();
    watch_.end(training, next_batch_);
    training.elapsed = in_seconds(now_);
    for (std::uint32_t w = 0; w < workers_.size(); ++w) {
      telemetry(w).running_seconds = training.elapsed;
      training.add(telemetry(w));
    }
    if (replicas_.size() > 1) {
      for (const auto& replica : replicas_) {
        replica->with_snapshot([&](const float* theta, std::uint64_t) {
          result_.models.insert(result_.models.end(), theta, theta + d);
        });
      }
    }
    training.peak_vectors = workers_.size();
    for (const auto& replica : replicas_) training.peak_vectors += replica->peak_vectors();
    return std::move(result_);
  }

  const GradientSource& source_;
  const TrainerReplicas replicas_;
  const SimulationOptions& options_;
  const TrainersPlan& plan_;
  const bool lockstep_;
  const std::unique_ptr<Durations> compute_, update_, copy_;
  const std::int64_t end_;

  SimulationResult result_;
  ServedRows rows_;
  ShownRows shown_;
  std::optional<RowAggregator> row_steps_;  // in lockstep
  std::uint64_t published_ = 0;             // updates of several trainers
  std::vector<AlignedArray<float>> spare_;  // memory for gradients of rows
  std::optional<RowServers> servers_;       // of rows
  struct Flying {                           // a push, or a server's part of one
    RowPush push;
    std::uint32_t server = 0;
    RowServers::Part part;
    std::uint64_t t = 0;
  };
  std::deque<Flying> in_flight_;
  std::vector<std::uint32_t> free_;  // of these
  std::size_t flying_ = 0;
  RowPush nowhere_;  // of servers that have no rows
  std::vector<Player> workers_;
  Batch batch_;
  Timeline<Kind> timeline_;
  std::int64_t now_ = 0;
  std::uint64_t next_batch_ = 0, next_update_ = 0;
  std::size_t under_way_ = workers_.size();  // who has not come to the end of the batches
  std::uint32_t updating_ = 0;               // in their updates now
  std::int64_t updating_since_ = 0;
  Watch watch_;
  PlayedData data_;
  WatchedGradient gradient_;
  std::vector<float> mean_;  // of the replicas, where that is the output
  std::vector<std::unique_ptr<Trainer>> trainers_;
  std::unique_ptr<PlayedSync> sync_;
};

}  // namespace

SimulationResult simulate(const GradientSource& source, const DatasetView& data,
                          const DatasetView* validation, const Choice& choice,
                          TrainerReplicas replicas, const DisciplineContext& context,
                          const SimulationOptions& options, const TrainCallbacks& callbacks,
                          const TrainersPlan& plan) {
  return Simulation(source, data, validation, choice, replicas, context, options, callbacks, plan)
      .run();
}

}  // namespace leashed
