// What a policy server behind the first does for rounds of all-reduce that the first leads
// (cluster/led_rounds.h).
#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/cluster/part_service.h"
#include "leashed/update/kernels.h"

namespace leashed {

std::span<std::byte> PartService::place_round_rows(Link& link, const FrameHeader& header) {
  check_round_rows(link, header);
  return place_values(link, link.rows.floats);
}

void PartService::check_round_rows(const Link& link, const FrameHeader& header) {
  const bool its = run_.reduces && rows_ && link.rows.there &&
                   link.rows.ticket == header.correlation && link.granted == header.correlation;
  if (its && header.length == link.rows.floats * sizeof(float)) return;
  strange_.fetch_add(1, kRelaxed);
  throw Error("gradients of other rows than were looked up");
}

void PartService::round_rows(Peer peer, Link& link, const FrameHeader& header) {
  check_round_rows(link, header);
  const std::size_t floats = link.rows.floats;
  if (update_kernels().first_not_finite(link.values.data(), floats) != floats) {
    throw Error("gradients of rows that are not finite, which are in no sum");
  }
  const std::uint64_t ticket = header.correlation;
  RowPush rows;
  take_rows(link, 0, rows);
  bool taken = false;
  carry_out(
      [&] { taken = follower_->take_rows(link.said->node, link.said->node_life, ticket, rows); });
  let_go_rows(link, rows);
  if (!taken) {  // of a life that is over, as its worker is to hear
    late_parts_.fetch_add(1, kRelaxed);
    return post_->refuse(peer);
  }
  post_->send(peer, {.kind = kRoundRows, .correlation = ticket}, {}, {}, nullptr);
  answer_looks();
}

std::span<std::byte> PartService::place_home(Peer peer, std::size_t length) {
  const std::size_t floats = server_.holder().updater().layout().length();
  if (!run_.reduces || peer != first_ || length != floats * sizeof(float)) {
    throw Error("θ and states that are not the first server's, or of another part");
  }
  home_ = AlignedArray<float>(floats);
  return std::as_writable_bytes(std::span(home_.data(), floats));
}

void PartService::answer_take() {
  if (!takes_ || *takes_ > position() || first_ == 0) return;
  const std::size_t floats = server_.holder().updater().layout().length();
  const auto copy = std::make_shared<AlignedArray<float>>(floats);
  std::copy_n(server_.holder().held(), floats, copy->data());
  const auto state = std::as_bytes(std::span<const float>(copy->data(), floats));
  post_->send(first_, {.kind = kRoundState, .correlation = *std::exchange(takes_, std::nullopt)},
              {}, {&state, 1}, copy);
}

}  // namespace leashed
