#include "leashed/simulation/play_mode.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "leashed/data/indexed_batches.h"
#include "leashed/server/own_models.h"
#include "leashed/simulation/durations.h"
#include "leashed/simulation/timeline.h"
#include "leashed/simulation/virtual_clock.h"
#include "leashed/simulation/watch.h"

namespace leashed {
namespace {

using modes::Event;
using modes::WorkerRule;

// In the order of one moment (policy/server_machine.h), evaluations last.
enum class Kind : std::uint8_t {
  arrive,  // of a push, at the server
  push,    // the server carries it out
  command,
  pull,
  wake,
  evaluate,
};

class ModePlay final : Sink {
 public:
  ModePlay(const GradientSource& source, const DatasetView& data, const DatasetView* validation,
           const modes::ServerPolicy& machine, const DisciplineContext& context,
           const SimulationOptions& options, const TrainCallbacks& callbacks)
      : source_(source),
        options_(options),
        batches_(data, options.batch_size, options.seed),
        compute_(make_durations(options.compute, seed_of(options.seed, kCompute))),
        update_(make_durations(options.update, seed_of(options.seed, kUpdate))),
        transfer_(make_durations(options.copy, seed_of(options.seed, kCopy))),
        end_(in_ns(options.until.seconds)),
        workspace_(source.make_workspace()),
        server_(machine, context),
        rule_(server_.rule()),
        models_(server_, context),
        players_(context.workers),
        watch_(source, data, validation, options.until, callbacks) {}

  ModeResult run() {
    const auto attached = source_.attach();
    evaluate();
    for (std::uint32_t w = 0; w < players_.size(); ++w) timeline_.enter({0, Kind::pull, w});
    for (std::uint32_t i = 0; i < options_.commands.size(); ++i) {
      timeline_.enter({in_ns(options_.commands[i].first), Kind::command, i});
    }
    enter_evaluation();
    while (!watch_.stop.stopped() && !timeline_.empty() && ended_ < players_.size()) {
      play(timeline_.take());
    }
    return finish();
  }

 private:
  struct Player {
    modes::Lease lease{};
    std::uint64_t version = 0;    // granted
    ParameterVector::Pin pulled;  // of a mode whose gradients are taken on it
    std::uint64_t t = 0;          // updates to what was pulled
    // Its own model when it began to compute, where a meeting has changed that since.
    std::vector<float> before;
    AlignedArray<float> sent;  // a gradient, or a model
    std::uint64_t drawn = 0, updates = 0, transfers = 0;
    std::int64_t since = 0, computed = 0;  // began to compute, or to wait; has computed
  };

  void play(const Moment<Kind>& moment) {
    if (moment.ns > end_ || moment.ns == std::numeric_limits<std::int64_t>::max()) {
      now_ = end_;
      return watch_.stop.stop(StopReason::seconds);
    }
    now_ = moment.ns;
    ++result_.simulation.events;
    switch (moment.kind) {
      case Kind::arrive:
        arrive(moment.worker);
        break;
      case Kind::push:
        push(moment.worker);
        break;
      case Kind::pull:
        tell({Event::Kind::pull, moment.worker});
        break;
      case Kind::command:  // the worker is the number of the command
        tell({Event::Kind::command, 0, 0, 0, options_.commands[moment.worker].second});
        break;
      case Kind::wake:
        tell({Event::Kind::wake});
        break;
      case Kind::evaluate:
        evaluate();
        enter_evaluation();
        break;
    }
    watch_.looked();
  }

  void tell(const Event& event, const Payload* payload = nullptr) {
    server_.handle(event, payload, {now_}, *this);
  }

  void grant(Grant grant) override {
    Player& player = players_[grant.node];
    player.lease = grant.lease;
    player.version = grant.version;
    player.t = grant.t;
    if (rule_.model == WorkerRule::Model::pulled) {
      player.pulled = std::move(grant.pulled);
    } else {
      models_.take(grant);
    }
    if (grant.lease.count == 0) return;
    telemetry_.waiting_seconds += in_seconds(now_ - player.since);
    player.since = after(now_, (*transfer_)(grant.node, player.transfers++));
    std::int64_t due = player.since;
    for (std::uint32_t step = 0; step < steps_of(player); ++step) {
      due = after(due, (*compute_)(grant.node, player.drawn++, due));
    }
    player.computed = due;
    timeline_.enter(
        {after(due, (*transfer_)(grant.node, player.transfers++)), Kind::arrive, grant.node});
  }

  void wake(Time at) override { timeline_.enter({std::max(at.ns, now_), Kind::wake, 0}); }

  void end(modes::Node) override {
    ++ended_;
    watch_.stop.finish(StopReason::epochs);
  }

  void settled(modes::Node, const Publication& publication) override {
    if (publication.excluded) {
      telemetry_.excluded.add(1);
    } else if (publication.published) {
      telemetry_.staleness.add(publication.staleness_compute);
      telemetry_.staleness_compute.add(publication.staleness_compute);
      telemetry_.staleness_schedule.add(0);
      telemetry_.tries.add(0);
    } else {
      telemetry_.dropped.add(1);
    }
  }

  // The server carries out one push after the other.
  void arrive(std::uint32_t worker) {
    const std::int64_t time = (*update_)(worker, players_[worker].updates++);
    server_free_ = after(std::max(now_, server_free_), time);
    telemetry_.update_seconds.add(in_seconds(time));
    telemetry_.attempt_seconds.add(in_seconds(time));
    timeline_.enter({server_free_, Kind::push, worker});
  }

  std::uint32_t steps_of(const Player& player) const {
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(rule_.local_steps, player.lease.count));
  }

  void push(std::uint32_t worker) {
    Player& player = players_[worker];
    if (!compute(worker)) return;
    const std::uint32_t steps = steps_of(player);
    telemetry_.gradient_seconds.add(in_seconds(player.computed - player.since) / steps, steps);
    player.pulled.release();
    player.since = now_;
    const Payload payload{&player.sent, player.t, player.lease.count};
    tell({Event::Kind::push, worker, player.lease.ticket, player.version}, &payload);
    if (updates() >= options_.until.updates) return watch_.stop.stop(StopReason::updates);
    timeline_.enter({now_, Kind::pull, worker});
  }

  // All gradients of a lease, which is cut into as many parts as there are local steps.
  bool compute(std::uint32_t worker) {
    Player& player = players_[worker];
    if (player.sent.size() == 0) player.sent = AlignedArray<float>(dimension());
    const std::uint32_t steps = steps_of(player);
    for (std::uint32_t step = 0; step < steps; ++step) {
      const std::uint64_t begin = player.lease.count * step / steps;
      const std::uint64_t end = player.lease.count * (step + 1) / steps;
      batches_.fill_span(player.lease.first + begin, end - begin, batch_);
      const bool own = rule_.model == WorkerRule::Model::own;
      const float* theta = own ? models_[worker] : player.pulled.data();
      if (step == 0 && !player.before.empty()) theta = player.before.data();
      const float loss =
          source_.gradient(theta, batch_.view, player.sent.data(), *workspace_, watch_.stop.flag());
      if (!std::isfinite(loss)) return watch_.stop.stop(StopReason::not_finite), false;
      telemetry_.gradients.add(1);
      player.before.clear();
      if (rule_.steps_own) {
        models_.step(worker, player.sent.data());
        ++own_updates_;
      }
      if (watch_.looked()) return false;
    }
    if (rule_.sends == WorkerRule::Sends::model) {
      std::copy_n(models_[worker], dimension(), player.sent.data());
    }
    return true;
  }

  void meet(std::span<const modes::Node> nodes, modes::Node from) override {
    for (const modes::Node node : nodes) {
      Player& player = players_[node];
      if (node != from && player.lease.count > 0 && player.before.empty()) {
        player.before.assign(models_[node], models_[node] + dimension());
      }
    }
    models_.meet(nodes);
  }

  void enter_evaluation() {
    if (!std::isfinite(options_.evaluate_every)) return;
    const std::int64_t next =
        after(now_, std::max<std::int64_t>(1, in_ns(options_.evaluate_every)));
    timeline_.enter({next, Kind::evaluate, 0});
  }

  // Of peers, and of an ensemble, the mean of the models: nobody holds another.
  template <class F>
  void with_theta(F&& f) {
    if (server_.has_global_model()) {
      const ParameterVector::Pin latest = server_.holder().pull();
      return f(latest.data());
    }
    f(models_.mean());
  }

  // Made to what the server holds; of peers, to all models.
  std::uint64_t updates() { return server_.holds() ? server_.holder().pull().t() : own_updates_; }

  void evaluate() {
    with_theta([&](const float* theta) {
      Evaluated e{};
      e.seconds = in_seconds(now_);
      e.updates = updates();
      e.live_vectors = server_.holder().live_vectors();
      e.gradients = telemetry_.gradients.get();
      telemetry_.staleness.merge_bins_into(e.staleness);
      watch_.evaluate(theta, std::move(e));
    });
  }

  ModeResult finish() {
    for (Player& player : players_) player.pulled.release();
    if (!watch_.interrupted() && !watch_.evaluated_at(in_seconds(now_), updates())) evaluate();
    TrainResult& training = result_.simulation.training;
    with_theta([&](const float* theta) { training.parameters.assign(theta, theta + dimension()); });
    training.updates = updates();
    watch_.end(training, options_.until.batches);
    training.elapsed = in_seconds(now_);
    telemetry_.running_seconds = training.elapsed * static_cast<double>(players_.size());
    training.add(telemetry_);
    result_.counts = server_.counts();
    training.worker_updates = result_.counts.worker_kept;
    training.peak_vectors = server_.holder().peak_vectors();
    return std::move(result_);
  }

  std::size_t dimension() const { return source_.dimension(); }

  const GradientSource& source_;
  const SimulationOptions& options_;
  const IndexedBatches batches_;
  const std::unique_ptr<Durations> compute_, update_, transfer_;
  const std::int64_t end_;
  const std::unique_ptr<Workspace> workspace_;

  ModeResult result_;
  ParameterServer server_;
  const WorkerRule rule_;
  OwnModels models_;
  std::vector<Player> players_;
  WorkerTelemetry telemetry_;  // of all together
  Batch batch_;
  Timeline<Kind> timeline_;
  std::int64_t now_ = 0, server_free_ = 0;
  std::uint64_t own_updates_ = 0;  // to all models of workers' own
  std::size_t ended_ = 0;
  Watch watch_;
};

}  // namespace

ModeResult simulate_mode(const GradientSource& source, const DatasetView& data,
                         const DatasetView* validation, const modes::ServerPolicy& machine,
                         const DisciplineContext& context, const SimulationOptions& options,
                         const TrainCallbacks& callbacks) {
  return ModePlay(source, data, validation, machine, context, options, callbacks).run();
}

}  // namespace leashed
