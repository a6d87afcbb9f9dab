#include "leashed/simulation/play_mode.h"

#include <limits>
#include <utility>
#include <vector>

#include "leashed/simulation/mode_gradients.h"
#include "leashed/simulation/mode_members.h"
#include "leashed/simulation/mode_outcome.h"
#include "leashed/simulation/mode_servers.h"
#include "leashed/simulation/mode_transfers.h"

namespace leashed {
namespace {

using modes::WorkerRule;

class ModePlay final : Sink {
 public:
  ModePlay(const GradientSource& source, const DatasetView& data, const DatasetView* validation,
           const Choice& mode, const Sharding& sharding, const DisciplineContext& context,
           const SimulationOptions& options, const TrainCallbacks& callbacks)
      : played_(source, data, validation, mode, sharding, context, options, callbacks),
        end_(in_ns(options.until.seconds)),
        transfers_(played_),
        gradients_(played_),
        outcome_(played_),
        servers_(played_, gradients_, *this),
        members_(played_, transfers_, outcome_, servers_) {}

  ModeResult run() {
    const auto attached = played_.source.attach();
    outcome_.evaluate();
    members_.begin();
    const auto& commands = played_.options.commands;
    for (std::uint32_t i = 0; i < commands.size(); ++i) {
      played_.timeline.enter({in_ns(commands[i].first), ModeEvent::command, i});
    }
    outcome_.enter_evaluation();
    while (!played_.watch.stop.stopped() && !played_.timeline.empty() && !done()) {
      play(played_.timeline.take());
    }
    if (done()) servers_.finish();
    return outcome_.finish(events_);
  }

 private:
  bool done() const { return played_.ended && played_.active == 0 && played_.under_way == 0; }

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
        transfers_.reach(worker, played_.shard_of(moment));
        break;
      case ModeEvent::come:
        come(worker, played_.shard_of(moment));
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
        servers_.pull(worker, played_.shard_of(moment));
        break;
      case ModeEvent::command:  // the worker is the number of the command
        servers_.tell_all(
            {modes::Event::Kind::command, 0, 0, 0, played_.options.commands[worker].second});
        break;
      case ModeEvent::wake:
        servers_.wake();
        break;
      case ModeEvent::evaluate:
        outcome_.evaluate();
        outcome_.enter_evaluation();
        break;
    }
    // Also who goes, and a lease that runs out, may close a round, which is an update.
    transfers_.reduce();
    if (played_.updates() >= played_.options.until.updates) {
      played_.watch.stop.stop(StopReason::updates);
    }
    played_.watch.looked();
  }

  // The gradient is computed when the first of its parts is carried out.
  void push(std::uint32_t worker, std::size_t shard) {
    ModePlayer& player = played_.players[worker];
    const std::size_t shards = played_.shards.size();
    if (player.left == shards) {
      if (!gradients_.compute(worker)) return;
    }
    --player.left;
    if (shards > 1) --played_.under_way;
    player.since = std::max(played_.now, player.fetched);
    if (shard == 0) player.working = false;
    const modes::Lease sent = player.sent;
    const std::uint64_t late = played_.shards[0].counts().late;
    servers_.push(worker, shard);
    if (shard == 0) {
      const bool in_time = played_.shards[0].counts().late == late;
      played_.data.batches().let_go(sent.first, sent.count, in_time);
    }
    if (pulls_now(player, shard)) played_.enter_pull(worker, shard);
  }

  // The pull comes with the push, but where the first of several servers has to grant before.
  bool pulls_now(const ModePlayer& player, std::size_t shard) const {
    if (shard == 0) return true;
    return !played_.shards.agree() && (!played_.shards.first_grants() || player.leased);
  }

  void grant(Grant grant) override {
    const modes::Node node = grant.node;
    const std::size_t shard = servers_.telling();
    if (!played_.members.there(node)) {  // it crashed, and has not been missed
      if (shard == 0) played_.lost += grant.lease.count;
      return;
    }
    Shards& shards = played_.shards;
    ModePlayer& player = played_.players[node];
    // Of one that was granted before it went, and could not be told so yet.
    const std::uint64_t count = grant.lease.count;
    const bool other = count > 0 && grant.lease.ticket != player.lease.ticket;
    if (shards.agree() && shard > 0 && other) return;
    ModePlayer::Part& part = player.parts[shard];
    if (shard == 0 && count > 0) {
      player.lease = grant.lease;
      played_.data.batches().hold(player.lease.first, player.lease.count);
    }
    part.ticket = grant.lease.ticket;
    part.version = grant.version;
    if (played_.rule.model == WorkerRule::Model::pulled) {
      part.pulled = std::move(grant.pulled);
    } else if (shards.size() == 1 || count == 0 || player.ended) {
      played_.models.take(grant, shards.spans(shard));
    } else {
      part.to_take.emplace(std::move(grant));
    }
    if (count == 0) return;
    part.granted = true;
    if (shard == 0) {
      leased(node);
    } else {
      if (player.leased) gradients_.renew_rows(node, shard);
      if (player.leased || !played_.rows.holder()) give(node, shard);
    }
    for (const ModePlayer::Part& one : player.parts) {
      if (!one.granted) return;
    }
    begin(node);
  }

  // By the first server: what its batch is, it is told by that.
  void leased(modes::Node node) {
    ModePlayer& player = played_.players[node];
    player.leased = true;
    gradients_.pull_rows(node);
    give(node, 0);
    for (std::size_t s = 1; s < player.parts.size(); ++s) {
      ModePlayer::Part& part = player.parts[s];
      if (part.granted && played_.rows.holder()) give(node, s);
      const bool pulls = played_.shards.first_grants() && !part.granted;
      if (pulls && !part.coming) played_.enter_pull(node, s);
    }
  }

  void give(modes::Node node, std::size_t shard) {
    if (transfers_.by_parts()) transfers_.give(node, shard);
  }
  void come(modes::Node node, std::size_t shard) {
    ModePlayer& player = played_.players[node];
    player.all_come = std::max(player.all_come, transfers_.come(node, shard));
    if (++player.come < player.parts.size()) return;
    player.come = 0;
    set_off(node, player.all_come);
  }

  // All servers have granted.
  void begin(modes::Node node) {
    ModePlayer& player = played_.players[node];
    player.leased = false;
    for (ModePlayer::Part& part : player.parts) part.granted = false;
    take_parts(player);
    played_.telemetry.waiting_seconds +=
        in_seconds(std::max<std::int64_t>(0, played_.now - player.since));
    player.working = true;
    player.since = played_.now;
    if (!transfers_.by_parts()) set_off(node, transfers_.pulled(node));
  }

  void take_parts(ModePlayer& player) {
    for (std::size_t shard = 0; shard < player.parts.size(); ++shard) {
      std::optional<Grant>& part = player.parts[shard].to_take;
      if (part) played_.models.take(*part, played_.shards.spans(shard));
      part.reset();
    }
  }

  // It has all that it computes on.
  void set_off(modes::Node node, std::int64_t ns) {
    ModePlayer& player = played_.players[node];
    std::int64_t due = player.since = std::max(ns, player.fetched);  // some servers answer pushes
    for (std::uint32_t step = 0; step < played_.steps_of(player); ++step) {
      due = after(due, (*played_.compute)(node, player.drawn++, due));
    }
    player.computed = due;
    player.fetched = played_.fetch(node, due);  // while its push is under way
    transfers_.send(node, due);
  }

  void wake(Time at) override {
    if (servers_.telling() > 0) return;  // the first's are told to all who decide as it does
    played_.timeline.enter({std::max(at.ns, played_.now), ModeEvent::wake, 0});
  }

  void end(modes::Node node) override {
    if (servers_.telling() > 0) return;
    played_.ended = true;
    played_.watch.stop.finish(StopReason::epochs);
    if (!played_.members.there(node)) return;
    ModePlayer& player = played_.players[node];
    played_.active -= !player.ended;
    player.ended = true;
    take_parts(player);
  }

  void settled(modes::Node node, const Publication& publication) override {
    outcome_.settled(node, servers_.telling(), publication);
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
  const std::int64_t end_;
  ModeTransfers transfers_;
  ModeGradients gradients_;
  ModeOutcome outcome_;
  ModeServers servers_;
  ModeMembers members_;
  std::vector<modes::Node> nodes_;
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
