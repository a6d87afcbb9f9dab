#include "leashed/simulation/play_mode.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "leashed/data/indexed_batches.h"
#include "leashed/server/aggregator.h"
#include "leashed/server/holder.h"
#include "leashed/simulation/durations.h"
#include "leashed/simulation/timeline.h"
#include "leashed/simulation/virtual_clock.h"
#include "leashed/simulation/watch.h"

namespace leashed {
namespace {

using modes::Action;
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

class ModePlay {
 public:
  ModePlay(const GradientSource& source, const DatasetView& data, const DatasetView* validation,
           modes::ServerPolicy& machine, const DisciplineContext& context,
           const SimulationOptions& options, const TrainCallbacks& callbacks)
      : source_(source),
        machine_(machine),
        rule_(modes::rule(machine)),
        staleness_(context.staleness),
        options_(options),
        batches_(data, options.batch_size, options.seed),
        compute_(make_durations(options.compute, seed_of(options.seed, kCompute))),
        update_(make_durations(options.update, seed_of(options.seed, kUpdate))),
        transfer_(make_durations(options.copy, seed_of(options.seed, kCopy))),
        end_(in_ns(options.until.seconds)),
        workspace_(source.make_workspace()),
        holder_(context),
        aggregator_(source.dimension()),
        players_(context.workers),
        watch_(source, data, validation, options.until, callbacks) {
    result_.counts.worker_examples.resize(context.workers);
    if (rule_.model != WorkerRule::Model::own) return;
    for (Player& player : players_) player.own = holder_.updater().initial(context);
  }

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
    return end();
  }

 private:
  struct Player {
    modes::Lease lease{};
    std::uint64_t version = 0;    // granted
    ParameterVector::Pin pulled;  // of a mode whose gradients are taken on it
    std::uint64_t t = 0;          // updates to what was pulled
    AlignedArray<float> own;      // θ and the rule's state, of a mode with own models
    std::uint64_t own_t = 0;      // updates to it
    std::vector<float> before;  // θ when it began to compute, where a meeting has changed it since
    AlignedArray<float> sent;   // a gradient, or a model
    std::uint64_t drawn = 0, updates = 0, transfers = 0;
    std::uint64_t kept = 0;                // pushes that were not dropped
    std::int64_t since = 0, computed = 0;  // began to compute, or to wait; has computed
    bool granted = false;                  // at least once
  };
  struct Held {
    std::uint32_t worker = 0;
    std::uint64_t t = 0, examples = 0;
    std::uint64_t ticket = 0;
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

  void tell(const Event& event) {
    out_.clear();
    modes::on(machine_, event, {now_}, out_);
    for (const Action& action : out_.actions()) carry_out(action, event);
  }

  void carry_out(const Action& action, const Event& event) {
    switch (action.kind) {
      case Action::Kind::grant:
        grant(action);
        break;
      case Action::Kind::hold:
        hold(action.slot, event.node);
        break;
      case Action::Kind::apply:
        apply(action);
        break;
      case Action::Kind::drop:
        drop(action, event);
        break;
      case Action::Kind::exchange: {
        const float* const model = players_[event.node].own.data();
        const float alpha = action.alpha;
        holder_.change([&](float* theta) {
          for (std::size_t i = 0; i < dimension(); ++i) {
            theta[i] = (1 - alpha) * theta[i] + alpha * model[i];
          }
        });
        ++result_.counts.exchanges;
        break;
      }
      case Action::Kind::meet:
        meet(out_.nodes(action), event.node);
        break;
      case Action::Kind::wake:
        timeline_.enter({std::max(action.at.ns, now_), Kind::wake, 0});
        break;
      case Action::Kind::end:
        ++ended_;
        watch_.stop.finish(StopReason::epochs);
        break;
    }
  }

  void grant(const Action& action) {
    Player& player = players_[action.node];
    player.lease = action.lease;
    player.version = action.version;
    ParameterVector::Pin latest = holder_.pull();
    player.t = latest.t();
    if (rule_.model == WorkerRule::Model::pulled) {
      player.pulled = std::move(latest);
    } else {
      take(player, latest.data(), action);
    }
    player.granted = true;
    if (action.lease.count == 0) return;
    telemetry_.waiting_seconds += in_seconds(now_ - player.since);
    player.since = after(now_, (*transfer_)(action.node, player.transfers++));
    std::int64_t due = player.since;
    for (std::uint32_t step = 0; step < steps_of(player); ++step) {
      due = after(due, (*compute_)(action.node, player.drawn++, due));
    }
    player.computed = due;
    timeline_.enter(
        {after(due, (*transfer_)(action.node, player.transfers++)), Kind::arrive, action.node});
  }

  // The server carries out one push after the other.
  void arrive(std::uint32_t worker) {
    const std::int64_t time = (*update_)(worker, players_[worker].updates++);
    server_free_ = after(std::max(now_, server_free_), time);
    telemetry_.update_seconds.add(in_seconds(time));
    telemetry_.attempt_seconds.add(in_seconds(time));
    timeline_.enter({server_free_, Kind::push, worker});
  }

  // A mode of peers has nobody who holds anything: its first grant brings what all begin with.
  void take(Player& player, const float* holder, const Action& action) {
    const bool holds = !std::holds_alternative<modes::Peers>(machine_);
    float alpha = 1;
    if (rule_.takes == WorkerRule::Takes::mix && player.granted) {
      alpha = static_cast<float>(rule_.mixing.weight(action.n, action.c));
    }
    if (!holds && player.granted) return;
    float* const own = player.own.data();
    for (std::size_t i = 0; i < dimension(); ++i) {
      own[i] = (1 - alpha) * own[i] + alpha * holder[i];
    }
  }

  std::uint32_t steps_of(const Player& player) const {
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(rule_.local_steps, player.lease.count));
  }

  void push(std::uint32_t worker) {
    Player& player = players_[worker];
    if (!compute(player)) return;
    const std::uint32_t steps = steps_of(player);
    telemetry_.gradient_seconds.add(in_seconds(player.computed - player.since) / steps, steps);
    player.pulled.release();
    player.since = now_;
    result_.counts.worker_examples[worker] += player.lease.count;
    ++player.kept;
    tell({Event::Kind::push, worker, player.lease.ticket, player.version});
    if (updates() >= options_.until.updates) return watch_.stop.stop(StopReason::updates);
    timeline_.enter({now_, Kind::pull, worker});
  }

  // All gradients of a lease, which is cut into as many parts as there are local steps.
  bool compute(Player& player) {
    if (player.sent.size() == 0) player.sent = AlignedArray<float>(dimension());
    const std::uint32_t steps = steps_of(player);
    for (std::uint32_t step = 0; step < steps; ++step) {
      const std::uint64_t begin = player.lease.count * step / steps;
      const std::uint64_t end = player.lease.count * (step + 1) / steps;
      batches_.fill_span(player.lease.first + begin, end - begin, batch_);
      const bool own = rule_.model == WorkerRule::Model::own;
      const float* theta = own ? player.own.data() : player.pulled.data();
      if (step == 0 && !player.before.empty()) theta = player.before.data();
      const float loss =
          source_.gradient(theta, batch_.view, player.sent.data(), *workspace_, watch_.stop.flag());
      if (!std::isfinite(loss)) return watch_.stop.stop(StopReason::not_finite), false;
      telemetry_.gradients.add(1);
      player.before.clear();
      if (rule_.steps_own) step_own(player);
      if (watch_.looked()) return false;
    }
    if (rule_.sends == WorkerRule::Sends::model) {
      std::copy_n(player.own.data(), dimension(), player.sent.data());
    }
    return true;
  }

  void step_own(Player& player) {
    const Updater& updater = holder_.updater();
    const GradientPiece whole{player.sent.data(), 0, dimension()};
    updater.apply(player.own.data(), player.own.data(), {&whole, 1},
                  {player.own_t++, {}, updater.clip_factor({&whole, 1})});
    ++own_updates_;
  }

  void hold(std::uint32_t slot, std::uint32_t worker) {
    Player& player = players_[worker];
    aggregator_.hold(slot, player.sent);
    if (slot >= held_.size()) held_.resize(slot + 1);
    held_[slot] = {worker, player.t, player.lease.count, player.lease.ticket};
  }

  // A gradient is damped for the updates that came between its pull and now; what the policy leaves
  // out is no part of the mean.
  void apply(const Action& action) {
    const bool models = rule_.sends == WorkerRule::Sends::model;
    const std::uint64_t t = updates();
    double divisor = action.divisor;
    parts_.clear();
    observed_.clear();
    for (const modes::Slot& slot : out_.slots(action)) {
      const Held& held = held_[slot.index];
      const std::uint64_t tau = t - held.t;
      const double factor = models ? 1 : staleness_.factor(static_cast<double>(tau));
      if (factor == 0) {
        telemetry_.excluded.add(1);
        --players_[held.worker].kept;
        divisor -= 1;
        continue;
      }
      parts_.push_back({slot.index, slot.weight * factor});
      result_.counts.applied += held.examples;
      if (!models) observed_.push_back(tau);
    }
    if (parts_.empty()) return;
    if (models) {
      const float* const mean = aggregator_.mean(parts_, divisor);
      holder_.change([&](float* theta) { std::copy_n(mean, dimension(), theta); });
    } else if (parts_.size() == 1 && divisor == 1) {
      holder_.apply(aggregator_[parts_[0].slot], parts_[0].weight);
    } else {
      holder_.apply(aggregator_.mean(parts_, divisor), 1);
    }
    for (const std::uint64_t tau : observed_) {
      telemetry_.staleness.add(tau);
      telemetry_.staleness_compute.add(tau);
      telemetry_.staleness_schedule.add(0);
      telemetry_.tries.add(0);
      holder_.updater().applied(tau);
    }
  }

  void drop(const Action& action, const Event& event) {
    ModeCounts& counts = result_.counts;
    std::uint32_t worker = event.node;
    std::uint64_t examples = players_[worker].lease.count;
    for (const Held& held : held_) {
      if (held.ticket != action.ticket) continue;
      worker = held.worker;
      examples = held.examples;
    }
    --players_[worker].kept;
    switch (action.why) {
      case modes::Why::late:
        counts.late += examples;
        break;
      case modes::Why::stale:
        counts.stale += examples;
        break;
      case modes::Why::straggler:
        counts.straggler += examples;
        break;
    }
    telemetry_.dropped.add(1);
  }

  void meet(std::span<const modes::Node> nodes, std::uint32_t from) {
    mean_.assign(dimension(), 0.0f);
    for (const modes::Node node : nodes) add_own(node);
    for (const modes::Node node : nodes) {
      Player& player = players_[node];
      if (node != from && player.lease.count > 0 && player.before.empty()) {
        player.before.assign(player.own.data(), player.own.data() + dimension());
      }
      for (std::size_t i = 0; i < dimension(); ++i) {
        players_[node].own.data()[i] = mean_[i] / static_cast<float>(nodes.size());
      }
    }
    ++result_.counts.meetings;
  }
  void add_own(std::uint32_t worker) {
    const float* const own = players_[worker].own.data();
    for (std::size_t i = 0; i < dimension(); ++i) mean_[i] += own[i];
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
    const bool nobody =
        std::holds_alternative<modes::Peers>(machine_) ||
        (rule_.takes == WorkerRule::Takes::mix && rule_.mixing.kind == modes::Mixing::Kind::fixed &&
         rule_.mixing.alpha == 0);
    if (!nobody) {
      const ParameterVector::Pin latest = holder_.pull();
      return f(latest.data());
    }
    mean_.assign(dimension(), 0.0f);
    for (std::uint32_t w = 0; w < players_.size(); ++w) add_own(w);
    for (float& value : mean_) value /= static_cast<float>(players_.size());
    f(mean_.data());
  }

  // Made to what the server holds; of peers, to all models.
  std::uint64_t updates() {
    return std::holds_alternative<modes::Peers>(machine_) ? own_updates_ : holder_.pull().t();
  }

  void evaluate() {
    with_theta([&](const float* theta) {
      Evaluated e{};
      e.seconds = in_seconds(now_);
      e.updates = updates();
      e.live_vectors = holder_.live_vectors();
      e.gradients = telemetry_.gradients.get();
      telemetry_.staleness.merge_bins_into(e.staleness);
      watch_.evaluate(theta, std::move(e));
    });
  }

  ModeResult end() {
    for (Player& player : players_) player.pulled.release();
    if (!watch_.interrupted() && !watch_.evaluated_at(in_seconds(now_), updates())) evaluate();
    TrainResult& training = result_.simulation.training;
    with_theta([&](const float* theta) { training.parameters.assign(theta, theta + dimension()); });
    training.updates = updates();
    watch_.end(training, options_.until.batches);
    training.elapsed = in_seconds(now_);
    telemetry_.running_seconds = training.elapsed * static_cast<double>(players_.size());
    training.add(telemetry_);
    training.worker_updates.clear();
    for (const Player& player : players_) training.worker_updates.push_back(player.kept);
    training.peak_vectors = holder_.peak_vectors();
    return std::move(result_);
  }

  std::size_t dimension() const { return holder_.dimension(); }

  const GradientSource& source_;
  modes::ServerPolicy& machine_;
  const WorkerRule rule_;
  const StalenessPolicy& staleness_;
  const SimulationOptions& options_;
  const IndexedBatches batches_;
  const std::unique_ptr<Durations> compute_, update_, transfer_;
  const std::int64_t end_;
  const std::unique_ptr<Workspace> workspace_;

  ModeResult result_;
  Holder holder_;
  Aggregator aggregator_;
  std::vector<Player> players_;
  WorkerTelemetry telemetry_;  // of all together
  std::vector<Held> held_;     // by slot
  std::vector<Aggregator::Part> parts_;
  std::vector<std::uint64_t> observed_;  // staleness of what an update is made of
  std::vector<float> mean_;
  modes::Out out_;
  Batch batch_;
  Timeline<Kind> timeline_;
  std::int64_t now_ = 0, server_free_ = 0;
  std::uint64_t own_updates_ = 0;  // to all models of workers' own
  std::size_t ended_ = 0;
  Watch watch_;
};

}  // namespace

ModeResult simulate_mode(const GradientSource& source, const DatasetView& data,
                         const DatasetView* validation, modes::ServerPolicy& machine,
                         const DisciplineContext& context, const SimulationOptions& options,
                         const TrainCallbacks& callbacks) {
  return ModePlay(source, data, validation, machine, context, options, callbacks).run();
}

}  // namespace leashed
