// What a policy server does for rounds of all-reduce that are led there (cluster/led_rounds.h).
#include <cstring>
#include <utility>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/cluster/policy_service.h"
#include "leashed/update/kernels.h"

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
  if (header.kind == kRoundRows) {
    check_round_rows(link, header);
    const std::size_t floats = link.rows.floats;
    if (update_kernels().first_not_finite(link.values.data(), floats) != floats) {
      throw Error("gradients of rows that are not finite, which are in no sum");
    }
    return void(link.rows.given = true);
  }
  const auto said = [&]<class Said>(Said) {
    Said one;
    if (header.length != sizeof one) throw Error("a word of a round that is none");
    std::memcpy(&one, link.small.data(), sizeof one);
    return one;
  };
  switch (header.kind) {
    case kRoundVote: {
      const auto vote = said(RoundVote{});
      // (For a sum that was given up it has voted before it heard of a lease in the one behind it.)
      const bool counts = rounds_->gives(peer) && vote.epoch == rounds_->epoch();
      if (rows_ && counts && !link.rows.given) {
        strange_.fetch_add(1, kRelaxed);
        throw Error("a vote for a sum without the gradients of its rows");
      }
      return rounds_->vote(peer, vote);
    }
    case kRoundAgain:
      return rounds_->again(peer, said(RoundEpoch{}));
    default:
      return rounds_->take(peer, said(RoundEpoch{}));
  }
}

std::span<std::byte> PolicyService::place_round_rows(Link& link, const FrameHeader& header) {
  check_round_rows(link, header);
  return place_values(link, link.rows.floats);
}

void PolicyService::check_round_rows(const Link& link, const FrameHeader& header) {
  const bool its = rounds_ && rows_ && link.rows.there && link.rows.ticket == header.correlation;
  if (its && has_lease(link, header.correlation) &&
      header.length == link.rows.floats * sizeof(float)) {
    return;
  }
  strange_.fetch_add(1, kRelaxed);
  throw Error("gradients of other rows than were looked up");
}

void PolicyService::tell_summed(Peer peer, const modes::Event& push, std::uint64_t examples) {
  Link& link = links_.at(peer);
  Payload payload{.values = nullptr, .examples = examples, .reduced = true};
  RowKeys rows;
  if (rows_) {
    rows_->take(link.rows, link.values.data(), rows);
    payload.rows = &rows;
    payload.row_gradients = &link.rows.gradients;
    rows_->let_go(link.rows);
  }
  tell(push, &payload);
  if (rows_) rows_->let_go(link.rows, rows);
}

}  // namespace leashed
