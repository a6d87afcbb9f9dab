#include "leashed/simulation/mode_members.h"

#include <cmath>
#include <utility>

namespace leashed {

using modes::WorkerRule;

void ModeMembers::begin() {
  for (std::uint32_t w = 0; w < played_.players.size(); ++w) {
    if (!played_.members.there(w)) {
      played_.enter(0, ModeEvent::leave, w);
      continue;
    }
    ++played_.active;
    played_.enter_pulls(w);
    if (played_.members.by_chance()) {
      played_.enter(played_.members.until_crash(w), ModeEvent::crash, w);
    }
  }
  constexpr ModeEvent kKinds[] = {ModeEvent::leave, ModeEvent::crash, ModeEvent::join};
  for (const MemberChange& change : played_.options.members.changes) {
    played_.timeline.enter(
        {in_ns(change.seconds), kKinds[static_cast<int>(change.kind)], change.worker});
  }
}

void ModeMembers::leave(std::uint32_t worker) {
  if (played_.members.there(worker)) go(worker);
  played_.members.leave(worker);
  servers_.tell_all({modes::Event::Kind::leave, worker});
}

void ModeMembers::crash(std::uint32_t worker, bool by_chance) {
  Membership& members = played_.members;
  if (!members.there(worker)) return;
  go(worker);
  members.crash(worker);
  const double detection = played_.options.members.detection;
  if (std::isfinite(detection)) {
    played_.enter(after(played_.now, in_ns(detection)), ModeEvent::missed, worker);
  }
  if (by_chance) {
    played_.enter(after(played_.now, members.until_return(worker)), ModeEvent::join, worker);
  }
}

void ModeMembers::miss(std::uint32_t worker) {
  played_.members.miss(worker);
  servers_.tell_all({modes::Event::Kind::leave, worker});
}

// What it had is lost.
void ModeMembers::go(std::uint32_t worker) {
  ModePlayer& player = played_.players[worker];
  if (player.working || player.leased) played_.lost += player.lease.count;
  player.working = false;
  player.leased = false;
  player.lease.ticket = 0;  // no server's that is behind may be taken for it
  player.come = 0;
  for (ModePlayer::Part& part : player.parts) drop(part);
  servers_.drop(worker);
  if (RowHolder* rows = played_.rows.holder()) rows->release(player.rows.keys);
  player.before.clear();
  player.away_since = played_.now;
  played_.active -= !player.ended;
  ++played_.departures;
  transfers_.cut(worker);
}

void ModeMembers::drop(ModePlayer::Part& part) {
  part.pulled.release();
  part.to_take.reset();
  part.granted = false;
  if (std::exchange(part.coming, false) && played_.shards.size() > 1) --played_.under_way;
  if (played_.rows.holder()) played_.rows.holder()->release(part.rows.keys);
}

void ModeMembers::join(std::uint32_t worker) {
  Membership& members = played_.members;
  if (members.there(worker)) return;
  if (members.unheard(worker)) miss(worker);
  if (played_.rule.model == WorkerRule::Model::own) renew(worker);
  if (played_.rule.reduces) lend(next(worker), worker);
  ModePlayer& player = played_.players[worker];
  played_.away_seconds += in_seconds(played_.now - player.away_since);
  player.ended = false;
  ++played_.active;
  members.come(worker);
  servers_.tell_all({modes::Event::Kind::join, worker});
  played_.enter_pulls(worker);
  if (members.by_chance()) {
    played_.enter(after(played_.now, members.until_crash(worker)), ModeEvent::crash, worker);
  }
}

// A worker with a model of its own comes with the one that is held, of peers with that of the next
// one on the ring who is there, and of an ensemble, or alone, with its own last; the rule's state
// is new.
void ModeMembers::renew(std::uint32_t worker) {
  ParameterServer& server = played_.shards[0];
  if (server.has_global_model()) {
    return outcome_.with_theta(
        [&](const float* theta) { played_.models.renew(worker, played_.context, theta, false); });
  }
  const std::uint32_t from = server.holds() ? worker : next(worker);
  played_.models.renew(worker, played_.context, played_.models[from], true);
  lend(from, worker);
}

// On the ring, who is there; alone the worker itself.
std::uint32_t ModeMembers::next(std::uint32_t worker) const {
  const auto size = static_cast<std::uint32_t>(played_.players.size());
  for (std::uint32_t i = 1; i < size; ++i) {
    if (played_.members.there((worker + i) % size)) return (worker + i) % size;
  }
  return worker;
}

void ModeMembers::lend(std::uint32_t from, std::uint32_t to) {
  if (from != to) played_.players[to].meets_until = transfers_.lend(from, to);
}

}  // namespace leashed
