#include "leashed/simulation/play_mode.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "leashed/data/indexed_batches.h"
#include "leashed/server/own_models.h"
#include "leashed/server/shards.h"
#include "leashed/simulation/durations.h"
#include "leashed/simulation/membership.h"
#include "leashed/simulation/network.h"
#include "leashed/simulation/played_rows.h"
#include "leashed/simulation/timeline.h"
#include "leashed/simulation/virtual_clock.h"
#include "leashed/simulation/watch.h"
#include "leashed/simulation/watched_gradient.h"

namespace leashed {
namespace {

using modes::Event;
using modes::WorkerRule;

// In the order of one moment (policy/server_machine.h), evaluations last.
enum class Kind : std::uint8_t {
  reach,   // of a push's first byte, the server's link
  arrive,  // all of it is at the server
  push,    // the server carries it out
  leave,
  crash,   // without a word
  missed,  // the server knows of a crash
  join,
  command,
  pull,
  wake,
  evaluate,
};

class ModePlay final : Sink {
 public:
  ModePlay(const GradientSource& source, const DatasetView& data, const DatasetView* validation,
           const Choice& mode, const Sharding& sharding, const DisciplineContext& context,
           const SimulationOptions& options, const TrainCallbacks& callbacks)
      : source_(source),
        context_(context),
        options_(options),
        batches_(data, options.batch_size, options.seed),
        compute_(make_durations(options.compute, seed_of(options.seed, kCompute))),
        update_(make_durations(options.update, seed_of(options.seed, kUpdate))),
        transfer_(make_durations(options.copy, seed_of(options.seed, kCopy))),
        end_(in_ns(options.until.seconds)),
        rows_(source, options.tables),
        shards_(mode, context, sharding, rows_.holder()),
        rule_(shards_[0].rule()),
        models_(shards_[0], context),
        members_(options.members, static_cast<std::uint32_t>(context.workers), options.seed),
        players_(context.workers),
        free_(shards_.size()),
        staleness_(shards_.size()),
        watch_(source, data, validation, options.until, callbacks, rows_.readers()),
        gradient_(source, watch_) {
    for (Player& player : players_) player.parts.resize(shards_.size());
    if (!options.network) return;
    network_.emplace(*options.network, static_cast<std::uint32_t>(context.workers), 1);
  }

  ModeResult run() {
    const auto attached = source_.attach();
    evaluate();
    enter_workers();
    for (std::uint32_t i = 0; i < options_.commands.size(); ++i) {
      timeline_.enter({in_ns(options_.commands[i].first), Kind::command, i});
    }
    enter_evaluation();
    while (!watch_.stop.stopped() && !timeline_.empty() &&
           !(ended_ && active_ == 0 && under_way_ == 0)) {
      play(timeline_.take());
    }
    return finish();
  }

 private:
  struct Player {
    // Of each shard.
    struct Part {
      std::uint64_t ticket = 0, version = 0;  // granted
      ParameterVector::Pin pulled;            // of a mode whose gradients are taken on it
      std::uint64_t t = 0;                    // updates to what was pulled
      std::optional<Grant> to_take;  // of an own model, until the parts of all servers are there
      AlignedArray<float> sent;      // of what is sent, where there are several
    };
    std::vector<Part> parts;
    modes::Lease lease{};          // the first shard's
    std::size_t granted = 0;       // of the parts that it waits for to begin
    std::size_t sent_off = 0;      // parts of its push that have not arrived yet
    std::size_t left = 0;          // and that are not carried out yet
    std::int64_t update_time = 0;  // of all servers together, for its push
    // Its own model when it began to compute, where a meeting has changed that since.
    std::vector<float> before;
    PulledRows rows;
    std::uint64_t drawn = 0, updates = 0, transfers = 0;
    std::int64_t since = 0, computed = 0;  // began to compute, or to wait; has computed
    std::int64_t meets_until = 0, away_since = 0;
    bool working = false;  // has a lease that it has not pushed for
    bool ended = false;
  };

  void play(const Moment<Kind>& moment) {
    if (moment.ns > end_ || moment.ns == std::numeric_limits<std::int64_t>::max()) {
      now_ = end_;
      return watch_.stop.stop(StopReason::seconds);
    }
    now_ = moment.ns;
    if (moment.life != 0 && moment.life != members_.life(worker_of(moment))) return;
    ++result_.simulation.events;
    switch (moment.kind) {
      case Kind::reach:
        enter(network_->receive(moment.worker, network_->server(0), bytes_of(moment.worker), now_),
              Kind::arrive, moment.worker, 0);
        break;
      case Kind::arrive:
        arrive(worker_of(moment), shard_of(moment));
        break;
      case Kind::push:
        push(worker_of(moment), shard_of(moment));
        break;
      case Kind::leave:
        leave(moment.worker);
        break;
      case Kind::crash:
        crash(moment.worker, moment.life != 0);
        break;
      case Kind::missed:
        miss(moment.worker);
        break;
      case Kind::join:
        join(moment.worker);
        break;
      case Kind::pull:  // it came with the push, or with the word that the worker joins
        pull(worker_of(moment), shard_of(moment));
        break;
      case Kind::command:  // the worker is the number of the command
        tell_all({Event::Kind::command, 0, 0, 0, options_.commands[moment.worker].second});
        break;
      case Kind::wake:
        tell_all({Event::Kind::wake});
        break;
      case Kind::evaluate:
        evaluate();
        enter_evaluation();
        break;
    }
    watch_.looked();
  }

  // Of what goes to one of several servers the number says both, so that it sorts by worker.
  static bool of_shard(Kind kind) {
    return kind == Kind::arrive || kind == Kind::push || kind == Kind::pull;
  }
  std::uint32_t worker_of(const Moment<Kind>& moment) const {
    return of_shard(moment.kind) ? static_cast<std::uint32_t>(moment.worker / shards_.size())
                                 : moment.worker;
  }
  std::size_t shard_of(const Moment<Kind>& moment) const { return moment.worker % shards_.size(); }
  std::uint32_t part_of(std::uint32_t worker, std::size_t shard) const {
    return static_cast<std::uint32_t>(worker * shards_.size() + shard);
  }

  void tell(std::size_t shard, const Event& event, const Payload* payload = nullptr) {
    shard_ = shard;
    shards_[shard].handle(event, payload, {now_}, *this);
  }
  void tell_all(const Event& event) {
    for (std::size_t s = 0; s < shards_.size(); ++s) tell(s, event);
  }

  void enter(std::int64_t ns, Kind kind, std::uint32_t worker) {
    timeline_.enter({ns, kind, worker, members_.life(worker)});
  }
  void enter(std::int64_t ns, Kind kind, std::uint32_t worker, std::size_t shard) {
    timeline_.enter({ns, kind, part_of(worker, shard), members_.life(worker)});
  }
  // Whatever became of the worker since.
  void enter_pull(std::int64_t ns, std::uint32_t worker, std::size_t shard) {
    timeline_.enter({ns, Kind::pull, part_of(worker, shard)});
  }
  void pull(std::uint32_t worker, std::size_t shard) {
    if (!members_.there(worker) && !members_.unheard(worker)) return;
    tell(shard, {Event::Kind::pull, worker});
  }

  void enter_workers() {
    for (std::uint32_t w = 0; w < players_.size(); ++w) {
      if (!members_.there(w)) {
        timeline_.enter({0, Kind::leave, w, members_.life(w)});
        continue;
      }
      ++active_;
      for (std::size_t s = 0; s < shards_.size(); ++s) enter_pull(0, w, s);
      if (members_.by_chance()) enter(members_.until_crash(w), Kind::crash, w);
    }
    constexpr Kind kKinds[] = {Kind::leave, Kind::crash, Kind::join};
    for (const MemberChange& change : options_.members.changes) {
      timeline_.enter(
          {in_ns(change.seconds), kKinds[static_cast<int>(change.kind)], change.worker});
    }
  }

  void leave(std::uint32_t worker) {
    if (members_.there(worker)) go(worker);
    members_.leave(worker);
    tell_all({Event::Kind::leave, worker});
  }

  void crash(std::uint32_t worker, bool by_chance) {
    if (!members_.there(worker)) return;
    go(worker);
    members_.crash(worker);
    if (std::isfinite(options_.members.detection)) {
      enter(after(now_, in_ns(options_.members.detection)), Kind::missed, worker);
    }
    if (by_chance) enter(after(now_, members_.until_return(worker)), Kind::join, worker);
  }

  void miss(std::uint32_t worker) {
    members_.miss(worker);
    tell_all({Event::Kind::leave, worker});
  }

  // What it had is lost.
  void go(std::uint32_t worker) {
    Player& player = players_[worker];
    if (player.working) lost_ += player.lease.count;
    player.working = false;
    for (Player::Part& part : player.parts) part.pulled.release();
    if (rows_.holder()) rows_.holder()->release(player.rows.keys);
    player.before.clear();
    player.away_since = now_;
    active_ -= !player.ended;
    ++departures_;
    if (network_) network_->cut(worker, now_);
  }

  void join(std::uint32_t worker) {
    if (members_.there(worker)) return;
    if (members_.unheard(worker)) miss(worker);
    if (rule_.model == WorkerRule::Model::own) renew(worker);
    Player& player = players_[worker];
    away_seconds_ += in_seconds(now_ - player.away_since);
    player.since = now_;
    player.ended = false;
    ++active_;
    members_.come(worker);
    tell_all({Event::Kind::join, worker});
    for (std::size_t s = 0; s < shards_.size(); ++s) enter_pull(now_, worker, s);
    if (members_.by_chance()) {
      enter(after(now_, members_.until_crash(worker)), Kind::crash, worker);
    }
  }

  // A worker with a model of its own comes with the one that is held, of peers with that of the
  // next one on the ring who is there, and of an ensemble, or alone, with its own last; the rule's
  // state is new.
  void renew(std::uint32_t worker) {
    if (shards_[0].has_global_model()) {
      return with_theta([&](const float* theta) { models_.renew(worker, context_, theta, false); });
    }
    std::uint32_t from = worker;
    const auto size = static_cast<std::uint32_t>(players_.size());
    for (std::uint32_t i = 1; i < size && from == worker && !shards_[0].holds(); ++i) {
      if (members_.there((worker + i) % size)) from = (worker + i) % size;
    }
    models_.renew(worker, context_, models_[from], true);
    if (!network_ || from == worker) return;
    const std::int64_t reached = network_->send(from, bytes(), now_);
    players_[worker].meets_until = network_->receive(from, worker, bytes(), reached);
  }

  void grant(Grant grant) override {
    if (!members_.there(grant.node)) {  // it crashed, and has not been missed
      lost_ += grant.lease.count;
      return;
    }
    const modes::Node node = grant.node;
    const std::uint64_t count = grant.lease.count;
    Player& player = players_[node];
    Player::Part& part = player.parts[shard_];
    if (shard_ == 0) player.lease = grant.lease;
    part.ticket = grant.lease.ticket;
    part.version = grant.version;
    part.t = grant.t;
    if (rule_.model == WorkerRule::Model::pulled) {
      part.pulled = std::move(grant.pulled);
    } else if (shards_.size() == 1 || grant.lease.count == 0) {
      models_.take(grant, shards_.spans(shard_));
    } else {
      part.to_take.emplace(std::move(grant));
    }
    if (count == 0 || ++player.granted < shards_.size()) return;
    player.granted = 0;
    for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
      std::optional<Grant>& to_take = player.parts[shard].to_take;
      if (to_take) models_.take(*to_take, shards_.spans(shard));
      to_take.reset();
    }
    if (rows_.holder()) {
      batches_.fill_span(player.lease.first, player.lease.count, batch_);
      rows_.holder()->pull(batch_.view, player.rows);
    }
    telemetry_.waiting_seconds += in_seconds(now_ - player.since);
    player.working = true;
    player.since = pulled(node);
    std::int64_t due = player.since;
    for (std::uint32_t step = 0; step < steps_of(player); ++step) {
      due = after(due, (*compute_)(node, player.drawn++, due));
    }
    player.computed = due;
    send(node, due);
  }

  // When what is granted now is all there. Who does not hold anything sends nothing.
  std::int64_t pulled(std::uint32_t worker) {
    Player& player = players_[worker];
    if (!network_) return after(now_, (*transfer_)(worker, player.transfers++));
    if (!shards_[0].holds()) return std::max(now_, player.meets_until);
    const Network::End server = network_->server(0);
    const std::uint64_t bytes = bytes_of(worker);
    return network_->receive(server, worker, bytes, network_->send(server, bytes, now_));
  }
  void send(std::uint32_t worker, std::int64_t due) {
    players_[worker].sent_off = players_[worker].left = shards_.size();
    if (!network_) {
      send_parts(worker, due);
    } else if (shards_[0].holds()) {
      enter(network_->send(worker, bytes_of(worker), due), Kind::reach, worker);
    } else {
      enter(due, Kind::arrive, worker, 0);
    }
  }
  // Of what the worker has pulled, and will push: the parameters, and the distinct rows of its
  // batch with their ids.
  std::uint64_t bytes_of(std::uint32_t worker) {
    std::uint64_t all = bytes();
    const std::vector<RowKeys::Part>& parts = players_[worker].rows.keys.parts;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::uint64_t row = sizeof(float) * rows_.holder()->tables()[i]->dim();
      all += parts[i].count * (row + sizeof(std::uint64_t));
    }
    return all;
  }
  std::uint64_t bytes() const { return sizeof(float) * dimension(); }  // of a model
  // A worker sends one part after the other, each worker another server's first, so that they do
  // not all come to the same one.
  void send_parts(std::uint32_t worker, std::int64_t due) {
    const std::int64_t time = (*transfer_)(worker, players_[worker].transfers++);
    std::size_t sent = 0;  // parameters
    for (std::size_t k = 0; k < shards_.size(); ++k) {
      const std::size_t shard = (worker + k) % shards_.size();
      sent += shards_.size(shard);
      enter(after(due, share(time, sent)), Kind::arrive, worker, shard);
    }
    // Where there are several, no worker is lost with its push.
    if (shards_.size() > 1) under_way_ += shards_.size();
  }
  std::int64_t share(std::int64_t time, std::size_t parameters) const {
    if (parameters == dimension()) return time;
    return std::llround(double(time) * double(parameters) / double(dimension()));
  }

  void wake(Time at) override { timeline_.enter({std::max(at.ns, now_), Kind::wake, 0}); }

  void end(modes::Node node) override {
    ended_ = true;
    watch_.stop.finish(StopReason::epochs);
    if (!members_.there(node)) return;
    active_ -= !players_[node].ended;
    players_[node].ended = true;
  }

  void settled(modes::Node, const Publication& publication) override {
    if (publication.excluded) {
      telemetry_.excluded.add(1);
    } else if (publication.published) {
      telemetry_.staleness.add(publication.staleness_compute);
      staleness_[shard_].add(publication.staleness_compute);
      telemetry_.staleness_compute.add(publication.staleness_compute);
      telemetry_.staleness_schedule.add(0);
      telemetry_.tries.add(0);
    } else {
      telemetry_.dropped.add(1);
    }
  }

  // A server carries out one push after the other; of several, each its part in its share of the
  // time. Peers have none, and do not wait for others'.
  void arrive(std::uint32_t worker, std::size_t shard) {
    Player& player = players_[worker];
    if (player.sent_off-- == shards_.size()) {
      player.update_time = (*update_)(worker, player.updates++);
      telemetry_.update_seconds.add(in_seconds(player.update_time));
      telemetry_.attempt_seconds.add(in_seconds(player.update_time));
    }
    const std::int64_t begun = shards_[0].holds() ? std::max(now_, free_[shard]) : now_;
    free_[shard] = after(begun, share(player.update_time, shards_.size(shard)));
    enter(free_[shard], Kind::push, worker, shard);
  }

  std::uint32_t steps_of(const Player& player) const {
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(rule_.local_steps, player.lease.count));
  }

  // The gradient is computed when the first of its parts is carried out.
  void push(std::uint32_t worker, std::size_t shard) {
    Player& player = players_[worker];
    if (player.left == shards_.size()) {
      if (!compute(worker)) return;
      const std::uint32_t steps = steps_of(player);
      telemetry_.gradient_seconds.add(in_seconds(player.computed - player.since) / steps, steps);
      for (Player::Part& part : player.parts) part.pulled.release();
      if (shards_.size() > 1) cut(player);
    }
    --player.left;
    if (shards_.size() > 1) --under_way_;
    player.since = now_;
    player.working = false;
    Player::Part& part = player.parts[shard];
    Payload payload{shards_.size() == 1 ? &sent_ : &part.sent, part.t, player.lease.count};
    if (rows_.holder()) {
      payload.rows = &player.rows.keys;
      payload.row_gradients = &row_gradients_;
    }
    tell(shard, {Event::Kind::push, worker, part.ticket, part.version}, &payload);
    if (updates() >= options_.until.updates) return watch_.stop.stop(StopReason::updates);
    enter_pull(now_, worker, shard);
  }

  // Where there are several servers, their parts of what is sent, until each has got there.
  void cut(Player& player) {
    for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
      AlignedArray<float>& sent = player.parts[shard].sent;
      if (sent.size() == 0) sent = AlignedArray<float>(shards_.size(shard));
      shards_.gather(shard, sent_.data(), sent.data());
    }
  }

  // The whole vector, of parts that may be of different versions; until the next.
  template <class PartOf>
  const float* assembled(PartOf&& part_of) {
    if (shards_.size() == 1) return part_of(0);
    if (assembled_.size() == 0) assembled_ = AlignedArray<float>(dimension());
    for (std::size_t s = 0; s < shards_.size(); ++s) {
      shards_.scatter(s, part_of(s), assembled_.data());
    }
    return assembled_.data();
  }

  // All gradients of a lease, which is cut into as many parts as there are local steps.
  bool compute(std::uint32_t worker) {
    Player& player = players_[worker];
    if (sent_.size() == 0) sent_ = AlignedArray<float>(dimension());
    const std::uint32_t steps = steps_of(player);
    for (std::uint32_t step = 0; step < steps; ++step) {
      const std::uint64_t begin = player.lease.count * step / steps;
      const std::uint64_t end = player.lease.count * (step + 1) / steps;
      batches_.fill_span(player.lease.first + begin, end - begin, batch_);
      if (rows_.holder()) rows_.holder()->show(player.rows, batch_.view, row_gradients_);
      const bool own = rule_.model == WorkerRule::Model::own;
      const float* theta =
          own ? models_[worker]
              : assembled([&](std::size_t shard) { return player.parts[shard].pulled.data(); });
      if (step == 0 && !player.before.empty()) theta = player.before.data();
      const float loss = gradient_(theta, batch_.view, sent_.data());
      if (watch_.stop.stopped()) return false;
      if (!std::isfinite(loss)) return watch_.stop.stop(StopReason::not_finite), false;
      telemetry_.gradients.add(1);
      player.before.clear();
      if (rule_.steps_own) {
        models_.step(worker, sent_.data());
        ++own_updates_;
        if (!shards_[0].holds() && own_updates_ >= options_.until.updates) {
          return watch_.stop.stop(StopReason::updates), false;
        }
      }
      if (watch_.looked()) return false;
    }
    if (rule_.sends == WorkerRule::Sends::model) {
      std::copy_n(models_[worker], dimension(), sent_.data());
    }
    return true;
  }

  // With who has crashed and has not been missed nobody can meet.
  void meet(std::span<const modes::Node> nodes, modes::Node) override {
    nodes_.clear();
    for (const modes::Node node : nodes) {
      if (members_.there(node)) nodes_.push_back(node);
    }
    if (nodes_.size() < 2) return;
    const std::int64_t done = network_ ? network_->average(nodes_, bytes(), now_) : now_;
    for (const modes::Node node : nodes_) {
      Player& player = players_[node];
      if (!player.working) {
        player.meets_until = done;
      } else if (player.before.empty()) {
        player.before.assign(models_[node], models_[node] + dimension());
      }
    }
    models_.meet(nodes_);
  }

  void enter_evaluation() {
    if (!std::isfinite(options_.evaluate_every)) return;
    const std::int64_t next =
        after(now_, std::max<std::int64_t>(1, in_ns(options_.evaluate_every)));
    timeline_.enter({next, Kind::evaluate, 0});
  }

  // Of peers, and of an ensemble, the mean of the models of those who are there, or of all where
  // nobody is: nobody holds another.
  template <class F>
  void with_theta(F&& f) {
    if (shards_[0].has_global_model()) {
      std::vector<ParameterVector::Pin> latest;
      for (std::size_t s = 0; s < shards_.size(); ++s) latest.push_back(shards_[s].holder().pull());
      return f(assembled([&](std::size_t shard) { return latest[shard].data(); }));
    }
    nodes_.clear();
    for (std::uint32_t w = 0; w < players_.size(); ++w) {
      if (members_.there(w)) nodes_.push_back(w);
    }
    if (nodes_.empty()) {
      nodes_.resize(players_.size());
      std::iota(nodes_.begin(), nodes_.end(), 0);
    }
    f(models_.mean(nodes_));
  }

  // Made to what the server holds; of peers, to all models.
  std::uint64_t updates() { return shards_[0].holds() ? shards_.updates() : own_updates_; }

  void evaluate() {
    with_theta([&](const float* theta) {
      Evaluated e{};
      e.seconds = in_seconds(now_);
      e.updates = updates();
      e.live_vectors = shards_.live_vectors();
      e.gradients = telemetry_.gradients.get();
      telemetry_.staleness.merge_bins_into(e.staleness);
      watch_.evaluate(theta, std::move(e));
    });
  }

  ModeResult finish() {
    for (Player& player : players_) player.parts.clear();
    if (!watch_.interrupted() && !watch_.evaluated_at(in_seconds(now_), updates())) evaluate();
    TrainResult& training = result_.simulation.training;
    with_theta([&](const float* theta) { training.parameters.assign(theta, theta + dimension()); });
    training.updates = updates();
    watch_.end(training, options_.until.batches);
    training.elapsed = in_seconds(now_);
    for (std::uint32_t w = 0; w < players_.size(); ++w) {
      if (!members_.there(w)) away_seconds_ += in_seconds(now_ - players_[w].away_since);
    }
    telemetry_.running_seconds =
        training.elapsed * static_cast<double>(players_.size()) - away_seconds_;
    result_.counts = shards_[0].counts();
    result_.counts.lost = lost_;
    result_.counts.departures = departures_;
    telemetry_.rows = result_.counts.rows;
    training.add(telemetry_);
    training.worker_updates = result_.counts.worker_kept;
    training.peak_vectors = shards_.peak_vectors();
    for (std::size_t s = 0; s < shards_.size(); ++s) {
      result_.shards.push_back({shards_.spans(s), shards_[s].holder().pull().t(), {}});
      staleness_[s].merge_into(result_.shards.back().staleness);
    }
    result_.models = models_.release();
    return std::move(result_);
  }

  std::size_t dimension() const { return source_.dimension(); }

  const GradientSource& source_;
  const DisciplineContext& context_;
  const SimulationOptions& options_;
  const IndexedBatches batches_;
  const std::unique_ptr<Durations> compute_, update_, transfer_;
  const std::int64_t end_;

  ModeResult result_;
  PlayedRows rows_;
  Shards shards_;
  const WorkerRule rule_;
  OwnModels models_;
  Membership members_;
  std::optional<Network> network_;
  std::vector<Player> players_;
  std::vector<std::int64_t> free_;         // when each server will be
  std::vector<CountHistogram> staleness_;  // by shard
  WorkerTelemetry telemetry_;              // of all together
  // What is pushed now, a gradient or a model, and the rows' gradients; and what was pulled.
  AlignedArray<float> sent_, row_gradients_, assembled_;
  std::vector<modes::Node> nodes_;
  Batch batch_;
  Timeline<Kind> timeline_;
  std::int64_t now_ = 0;
  std::size_t shard_ = 0;          // that is told an event
  std::size_t under_way_ = 0;      // parts of pushes to several servers, until they are carried out
  std::uint64_t own_updates_ = 0;  // to all models of workers' own
  std::size_t active_ = 0;         // there, and not at the end
  bool ended_ = false;             // all examples are done
  double away_seconds_ = 0;
  std::uint64_t lost_ = 0, departures_ = 0;
  Watch watch_;
  WatchedGradient gradient_;
};

}  // namespace

ModeResult simulate_mode(const GradientSource& source, const DatasetView& data,
                         const DatasetView* validation, const Choice& mode,
                         const Sharding& sharding, const DisciplineContext& context,
                         const SimulationOptions& options, const TrainCallbacks& callbacks) {
  return ModePlay(source, data, validation, mode, sharding, context, options, callbacks).run();
}

}  // namespace leashed
