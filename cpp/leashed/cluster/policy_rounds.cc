// What a policy server does for rounds of all-reduce that are led there (cluster/led_rounds.h).
#include <cstring>
#include <utility>

#include "leashed/base/error.h"
#include "leashed/cluster/policy_service.h"

namespace leashed {

RoundSeat PolicyService::seat(modes::Node node) const {
  for (const auto& [client, lane] : lanes_) {
    if (lane.node == node) return {client, lane.life, node};
  }
  return {};
}

void PolicyService::came_home() {
  for (const Peer peer : std::exchange(lookers_, {})) looked_at(peer);
  if (std::exchange(finishing_, false)) finish();
}

void PolicyService::round(Peer peer, Link& link, const FrameHeader& header) {
  if (!rounds_) throw Error("a frame of a kind that no worker sends");
  if (header.kind == kRoundState) return rounds_->state(peer);
  const auto said = [&]<class Said>(Said) {
    Said one;
    if (header.length != sizeof one) throw Error("a word of a round that is none");
    std::memcpy(&one, link.small.data(), sizeof one);
    return one;
  };
  switch (header.kind) {
    case kRoundVote:
      return rounds_->vote(peer, said(RoundVote{}));
    case kRoundAgain:
      return rounds_->again(peer, said(RoundEpoch{}));
    default:
      return rounds_->take(peer, said(RoundEpoch{}));
  }
}

}  // namespace leashed
