// What a policy server does for rounds of all-reduce that are led there (cluster/led_rounds.h).
#include <cstring>
#include <utility>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/cluster/ever_told.h"
#include "leashed/cluster/policy_service.h"
#include "leashed/update/kernels.h"

namespace leashed {

RoundSeat PolicyService::seat(modes::Node node) const {
  for (const auto& [client, lane] : lanes_) {
    if (lane.node == node) return {client, lane.life, node};
  }
  return {};
}

void PolicyService::begin_rounds() {
  const bool several = run_.followers > 0;
  if (several && run_.shards.servers() != run_.followers + 1) {
    throw Error("an all-reduce at several policy servers must know what each of them has");
  }
  RoundDesk& desk = *this;
  rounds_ =
      std::make_unique<LedRounds>(desk, server_, several ? &run_.shards : nullptr, run_.again);
}

std::span<std::byte> PolicyService::place_state(Peer peer, std::size_t length) {
  if (!rounds_) throw Error("a replica at a server that sums");
  const std::uint64_t server = told_ ? told_->server_of(peer) : 0;
  return server > 0 ? rounds_->place_part(server, length) : rounds_->place(peer, length);
}

std::uint64_t PolicyService::part_of_round(Peer peer, const FrameHeader& header) const {
  return header.kind == kRoundState && told_ ? told_->server_of(peer) : 0;
}

void PolicyService::ask_part(std::uint64_t server, std::uint64_t position) {
  const Peer peer = told_->peer_of(server);
  const RoundEpoch head{position};
  if (peer == 0) return;  // and is asked when it comes
  post_->send(peer, {.kind = kRoundTake}, std::as_bytes(std::span(&head, 1)), {}, nullptr);
}

void PolicyService::tell_home(std::uint64_t updates, std::vector<ToldLog::Part> parts) {
  const modes::Event event{modes::Event::Kind::push, 0, updates};
  told_->append_home({event, Time{elapsed()}, LogLine::Note::home}, std::move(parts));
  told_->send(*post_);
}

void PolicyService::tell_lost(std::uint64_t examples) {
  tell_note(LogLine::Note::lost, 0, examples);
}

void PolicyService::tell_note(LogLine::Note note, modes::Node node, std::uint64_t number) {
  if (!told_ || !rounds_) return;
  told_->append({{modes::Event::Kind::push, node, number}, Time{elapsed()}, note});
  if (post_) told_->send(*post_);
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
  summed_.fetch_add(1, kRelaxed);
  summed_examples_.fetch_add(examples, kRelaxed);
  count_ever(run_.ever, examples);
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
