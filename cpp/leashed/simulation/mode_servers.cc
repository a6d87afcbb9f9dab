#include "leashed/simulation/mode_servers.h"

namespace leashed {

using Push = ModePlayer::Part::Push;
using EventKind = modes::Event::Kind;

void ModeServers::pull(std::uint32_t worker, std::size_t shard) {
  if (!played_.members.there(worker) && !played_.members.unheard(worker)) return;
  if (shard == 0) return first({EventKind::pull, worker}, nullptr);
  tell(shard, {EventKind::pull, worker}, nullptr, played_.now);
}

void ModeServers::push(std::uint32_t worker, std::size_t shard) {
  ModePlayer::Part& part = played_.players[worker].parts[shard];
  part.push = Push::there;
  if (played_.shards.agree() && shard > 0) return go_on(shard);
  const Payload payload = gradients_.payload(worker, shard);
  part.push = Push::none;
  modes::Event event{EventKind::push, worker, part.ticket, part.version};
  event.lease = played_.players[worker].sent;
  if (shard == 0) return first(event, &payload);
  tell(shard, event, &payload, played_.now);
}

void ModeServers::tell_all(const modes::Event& event) {
  first(event, nullptr);
  if (played_.shards.agree()) return;
  for (std::size_t s = 1; s < played_.shards.size(); ++s) tell(s, event, nullptr, played_.now);
}

void ModeServers::finish() {
  finishing_ = true;
  for (std::size_t s = 1; s < played_.shards.size(); ++s) {
    go_on(s);
    if (played_.shards.agree()) continue;
    for (modes::Node node = 0; node < played_.players.size(); ++node) {
      tell(s, {EventKind::leave, node}, nullptr, played_.now);
    }
    tell(s, {EventKind::data_end}, nullptr, played_.now);
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
  tell(0, event, payload, played_.now);
  if (!played_.shards.agree()) return;
  for (std::size_t s = 1; s < played_.shards.size(); ++s) {
    queues_[s].push_back({event, played_.now});
    if (event.kind == EventKind::push) played_.players[event.node].parts[s].awaited = true;
    go_on(s);
  }
}

void ModeServers::tell(std::size_t shard, const modes::Event& event, const Payload* payload,
                       std::int64_t ns) {
  telling_ = shard;
  played_.shards[shard].handle(event, payload, {ns}, sink_);
}

void ModeServers::go_on(std::size_t shard) {
  std::deque<Told>& queue = queues_[shard];
  while (!queue.empty()) {
    const Told told = queue.front();
    if (told.event.kind != EventKind::push) {
      queue.pop_front();
      tell(shard, told.event, nullptr, told.ns);
      continue;
    }
    ModePlayer::Part& part = played_.players[told.event.node].parts[shard];
    if (waits_for(told, part)) return;
    queue.pop_front();
    Payload payload{nullptr, told.event.lease.count};
    if (part.push == Push::there) payload = gradients_.payload(told.event.node, shard);
    part.push = Push::none;
    part.awaited = false;
    tell(shard, told.event, &payload, told.ns);
  }
}

bool ModeServers::waits_for(const Told& told, const ModePlayer::Part& part) const {
  if (part.push == Push::there || finishing_) return false;
  if (part.push == Push::coming) return true;
  const bool over = played_.term_ns > 0 && played_.now >= after(told.ns, played_.term_ns);
  return played_.members.unheard(told.event.node) && !over;
}

}  // namespace leashed
