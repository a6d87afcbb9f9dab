#include "leashed/simulation/mode_servers.h"

namespace leashed {

using EventKind = modes::Event::Kind;

ModeServers::ModeServers(PlayedMode& played, ModeGradients& gradients, Sink& sink)
    : played_(played), gradients_(gradients), sink_(sink) {
  if (!played.shards.agree()) return;
  for (std::size_t s = 1; s < played.shards.size(); ++s) {
    followers_.emplace_back(played.shards[s], sink, played.players.size(), played.rows.holder());
  }
}

void ModeServers::pull(std::uint32_t worker, std::size_t shard) {
  if (!played_.members.there(worker) && !played_.members.unheard(worker)) return;
  if (shard == 0) return first({EventKind::pull, worker}, nullptr);
  tell(shard, {EventKind::pull, worker}, nullptr);
}

void ModeServers::push(std::uint32_t worker, std::size_t shard) {
  ModePlayer::Part& part = played_.players[worker].parts[shard];
  part.coming = false;
  const Payload payload = gradients_.payload(worker, shard);
  if (played_.shards.agree() && shard > 0) {
    telling_ = shard;
    Follower& of = follower(shard);
    of.take(worker, of.life(worker), part.ticket, payload.examples, part.sent, &part.rows);
    return go_on(shard);
  }
  modes::Event event{EventKind::push, worker, part.ticket, part.version};
  event.lease = played_.players[worker].sent;
  if (shard == 0) return first(event, &payload);
  tell(shard, event, &payload);
}

void ModeServers::tell_all(const modes::Event& event) {
  first(event, nullptr);
  if (played_.shards.agree()) return;
  for (std::size_t s = 1; s < played_.shards.size(); ++s) tell(s, event, nullptr);
}

void ModeServers::drop(std::uint32_t worker) {
  for (Follower& of : followers_) of.drop(worker);
}

void ModeServers::finish() {
  finishing_ = true;
  for (std::size_t s = 1; s < played_.shards.size(); ++s) {
    if (played_.shards.agree()) {
      go_on(s);
      continue;
    }
    for (modes::Node node = 0; node < played_.players.size(); ++node) {
      tell(s, {EventKind::leave, node}, nullptr);
    }
    tell(s, {EventKind::data_end}, nullptr);
  }
}

// Before anything is granted it is known to be there, or where the data end.
void ModeServers::look_ahead() {
  if (played_.data_ended || !played_.data.streamed()) return;
  const ParameterServer& server = played_.shards[0];
  const std::uint64_t wanted =
      server.examples_leased() + played_.players.size() * server.largest_lease();
  const std::uint64_t there = played_.data.examples(wanted);
  if (there == wanted || played_.watch.stop.stopped()) return;
  played_.data_ended = true;
  first({EventKind::data_end, 0, there}, nullptr);
}

void ModeServers::first(const modes::Event& event, const Payload* payload) {
  look_ahead();
  if (played_.data.streamed() && played_.watch.stop.stopped()) return;
  tell(0, event, payload);
  if (!played_.shards.agree()) return;
  for (std::size_t s = 1; s < played_.shards.size(); ++s) {
    telling_ = s;
    follower(s).hear(event, {played_.now});
    go_on(s);
  }
}

void ModeServers::tell(std::size_t shard, const modes::Event& event, const Payload* payload) {
  telling_ = shard;
  played_.shards[shard].handle(event, payload, {played_.now}, sink_);
}

void ModeServers::go_on(std::size_t shard) {
  telling_ = shard;
  Follower& of = follower(shard);
  for (const Follower::Told* told = of.waits(); told; told = of.waits()) {
    if (waits_for(*told, shard)) return;
    of.give_up();
  }
}

bool ModeServers::waits_for(const Follower::Told& told, std::size_t shard) const {
  if (finishing_) return false;
  if (played_.players[told.event.node].parts[shard].coming) return true;
  const bool over = played_.term_ns > 0 && played_.now >= after(told.at.ns, played_.term_ns);
  return played_.members.unheard(told.event.node) && !over;
}

}  // namespace leashed
