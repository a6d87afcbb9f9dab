// What lanes of a policy server have to do with rounds of all-reduce (cluster/lane_rounds.h).
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "leashed/base/clock.h"
#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/cluster/remote_server.h"

namespace leashed {
namespace {

constexpr std::size_t kLeader = 0;  // of a lane's conversation: the one that there is
constexpr double kParting = 2;      // seconds

}  // namespace

std::vector<std::pair<std::size_t, std::uint64_t>> RemoteServer::wanted() const {
  std::vector<std::pair<std::size_t, std::uint64_t>> all;
  for (std::size_t lane = 0; lane < seats_.size(); ++lane) {
    if (!seats_[lane].rounds || seats_[lane].done.load(kRelaxed)) continue;
    for (const std::uint64_t client : seats_[lane].rounds->wanted()) all.emplace_back(lane, client);
  }
  return all;
}

void RemoteServer::adopt_sum(std::size_t lane, std::uint64_t client, int socket, bool checked,
                             Transport wish, Role role) {
  const Seat& seat = seats_.at(lane);
  if (!seat.rounds) throw Error("no worker is there that sums");
  seat.rounds->adopt(client, connected(socket, kRingLimits, checked, wish, role));
}

// For moments: what nobody else has is not to be lost with it.
void RemoteServer::part(Seat& seat) {
  if (!seat.rounds || !seat.welcomed || !seat.talk.has(kLeader)) return;
  const double end = now() + kParting;
  try {
    for (bool said = !seat.rounds->leaves_something(); now() < end;) {
      if (!seat.talk.free(kLeader)) {
        const std::size_t lane = kLeader;
        seat.talk.wait({}, {&lane, 1}, Deadline{});
      } else if (!std::exchange(said, true)) {
        seat.rounds->part(seat.talk, kLeader);
      } else {
        return;
      }
    }
  } catch (const Error&) {  // then it is lost
  }
}

}  // namespace leashed
