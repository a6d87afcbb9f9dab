#include "leashed/simulation/play_mode.h"

#include <limits>
#include <utility>
#include <vector>

#include "leashed/simulation/mode_gradients.h"
#include "leashed/simulation/mode_members.h"
#include "leashed/simulation/mode_outcome.h"
#include "leashed/simulation/mode_transfers.h"

namespace leashed {
namespace {

using modes::Event;
using modes::WorkerRule;

class ModePlay final : Sink {
 public:
  ModePlay(const GradientSource& source, const DatasetView& data, const DatasetView* validation,
           const Choice& mode, const Sharding& sharding, const DisciplineContext& context,
           const SimulationOptions& options, const TrainCallbacks& callbacks)
      : played_(source, data, validation, mode, sharding, context, options, callbacks),
        compute_(make_durations(options.compute, seed_of(options.seed, kCompute))),
        end_(in_ns(options.until.seconds)),
        transfers_(played_),
        gradients_(played_),
        outcome_(played_),
        members_(played_, transfers_, outcome_, [this](const Event& event) { tell_all(event); }) {}

  ModeResult run() {
    const auto attached = played_.source.attach();
    outcome_.evaluate();
    members_.begin();
    const auto& commands = played_.options.commands;
    for (std::uint32_t i = 0; i < commands.size(); ++i) {
      played_.timeline.enter({in_ns(commands[i].first), ModeEvent::command, i});
    }
    outcome_.enter_evaluation();
    while (!played_.watch.stop.stopped() && !played_.timeline.empty() &&
           !(played_.ended && played_.active == 0 && played_.under_way == 0)) {
      play(played_.timeline.take());
    }
    return outcome_.finish(events_);
  }

 private:
  void play(const Moment<ModeEvent>& moment) {
    if (moment.ns > end_ || moment.ns == std::numeric_limits<std::int64_t>::max()) {
      played_.now = end_;
      return played_.watch.stop.stop(StopReason::seconds);
    }
    played_.now = moment.ns;
    const std::uint32_t worker = played_.worker_of(moment);
    if (moment.life != 0 && moment.life != played_.members.life(worker)) return;
    ++events_;
    switch (moment.kind) {
      case ModeEvent::reach:
        transfers_.reach(worker);
        break;
      case ModeEvent::arrive:
        transfers_.arrive(worker, played_.shard_of(moment));
        break;
      case ModeEvent::push:
        push(worker, played_.shard_of(moment));
        break;
      case ModeEvent::leave:
        members_.leave(worker);
        break;
      case ModeEvent::crash:
        members_.crash(worker, moment.life != 0);
        break;
      case ModeEvent::missed:
        members_.miss(worker);
        break;
      case ModeEvent::join:
        members_.join(worker);
        break;
      case ModeEvent::pull:  // it came with the push, or with the word that the worker joins
        pull(worker, played_.shard_of(moment));
        break;
      case ModeEvent::command:  // the worker is the number of the command
        tell_all({Event::Kind::command, 0, 0, 0, played_.options.commands[worker].second});
        break;
      case ModeEvent::wake:
        tell_all({Event::Kind::wake});
        break;
      case ModeEvent::evaluate:
        outcome_.evaluate();
        outcome_.enter_evaluation();
        break;
    }
    played_.watch.looked();
  }

  void tell(std::size_t shard, const Event& event, const Payload* payload = nullptr) {
    shard_ = shard;
    played_.shards[shard].handle(event, payload, {played_.now}, *this);
  }
  void tell_all(const Event& event) {
    for (std::size_t s = 0; s < played_.shards.size(); ++s) tell(s, event);
  }

  void pull(std::uint32_t worker, std::size_t shard) {
    if (!played_.members.there(worker) && !played_.members.unheard(worker)) return;
    tell(shard, {Event::Kind::pull, worker});
  }

  // The gradient is computed when the first of its parts is carried out.
  void push(std::uint32_t worker, std::size_t shard) {
    ModePlayer& player = played_.players[worker];
    const std::size_t shards = played_.shards.size();
    if (player.left == shards) {
      if (!gradients_.compute(worker)) return;
      const std::uint32_t steps = played_.steps_of(player);
      const double seconds = in_seconds(player.computed - player.since);
      played_.telemetry.gradient_seconds.add(seconds / steps, steps);
    }
    --player.left;
    if (shards > 1) --played_.under_way;
    player.since = played_.now;
    player.working = false;
    const ModePlayer::Part& part = player.parts[shard];
    const Payload payload = gradients_.payload(worker, shard);
    tell(shard, {Event::Kind::push, worker, part.ticket, part.version}, &payload);
    if (played_.updates() >= played_.options.until.updates) {
      return played_.watch.stop.stop(StopReason::updates);
    }
    played_.enter_pull(played_.now, worker, shard);
  }

  void grant(Grant grant) override {
    if (!played_.members.there(grant.node)) {  // it crashed, and has not been missed
      played_.lost += grant.lease.count;
      return;
    }
    const modes::Node node = grant.node;
    const std::uint64_t count = grant.lease.count;
    Shards& shards = played_.shards;
    ModePlayer& player = played_.players[node];
    ModePlayer::Part& part = player.parts[shard_];
    if (shard_ == 0) player.lease = grant.lease;
    part.ticket = grant.lease.ticket;
    part.version = grant.version;
    part.t = grant.t;
    if (played_.rule.model == WorkerRule::Model::pulled) {
      part.pulled = std::move(grant.pulled);
    } else if (shards.size() == 1 || count == 0) {
      played_.models.take(grant, shards.spans(shard_));
    } else {
      part.to_take.emplace(std::move(grant));
    }
    if (count == 0 || ++player.granted < shards.size()) return;
    player.granted = 0;
    begin(node);
  }

  void begin(modes::Node node) {
    ModePlayer& player = played_.players[node];
    for (std::size_t shard = 0; shard < played_.shards.size(); ++shard) {
      std::optional<Grant>& to_take = player.parts[shard].to_take;
      if (to_take) played_.models.take(*to_take, played_.shards.spans(shard));
      to_take.reset();
    }
    gradients_.pull_rows(node);
    played_.telemetry.waiting_seconds += in_seconds(played_.now - player.since);
    player.working = true;
    player.since = transfers_.pulled(node);
    std::int64_t due = player.since;
    for (std::uint32_t step = 0; step < played_.steps_of(player); ++step) {
      due = after(due, (*compute_)(node, player.drawn++, due));
    }
    player.computed = due;
    transfers_.send(node, due);
  }

  void wake(Time at) override {
    played_.timeline.enter({std::max(at.ns, played_.now), ModeEvent::wake, 0});
  }

  void end(modes::Node node) override {
    played_.ended = true;
    played_.watch.stop.finish(StopReason::epochs);
    if (!played_.members.there(node)) return;
    played_.active -= !played_.players[node].ended;
    played_.players[node].ended = true;
  }

  void settled(modes::Node, const Publication& publication) override {
    outcome_.settled(shard_, publication);
  }

  // With who has crashed and has not been missed nobody can meet.
  void meet(std::span<const modes::Node> nodes, modes::Node) override {
    nodes_.clear();
    for (const modes::Node node : nodes) {
      if (played_.members.there(node)) nodes_.push_back(node);
    }
    if (nodes_.size() < 2) return;
    const std::int64_t done = transfers_.meet(nodes_);
    for (const modes::Node node : nodes_) {
      ModePlayer& player = played_.players[node];
      if (!player.working) {
        player.meets_until = done;
      } else if (player.before.empty()) {
        const float* const own = played_.models[node];
        player.before.assign(own, own + played_.dimension());
      }
    }
    played_.models.meet(nodes_);
  }

  PlayedMode played_;
  const std::unique_ptr<Durations> compute_;
  const std::int64_t end_;
  ModeTransfers transfers_;
  ModeGradients gradients_;
  ModeOutcome outcome_;
  ModeMembers members_;
  std::vector<modes::Node> nodes_;
  std::size_t shard_ = 0;  // that is told an event
  std::uint64_t events_ = 0;
};

}  // namespace

ModeResult simulate_mode(const GradientSource& source, const DatasetView& data,
                         const DatasetView* validation, const Choice& mode,
                         const Sharding& sharding, const DisciplineContext& context,
                         const SimulationOptions& options, const TrainCallbacks& callbacks) {
  return ModePlay(source, data, validation, mode, sharding, context, options, callbacks).run();
}

}  // namespace leashed
