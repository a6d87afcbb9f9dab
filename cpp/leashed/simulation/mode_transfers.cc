#include "leashed/simulation/mode_transfers.h"

#include <algorithm>
#include <cmath>

namespace leashed {

ModeTransfers::ModeTransfers(PlayedMode& played)
    : played_(played),
      update_(make_durations(played.options.update, seed_of(played.options.seed, kUpdate))),
      transfer_(make_durations(played.options.copy, seed_of(played.options.seed, kCopy))),
      served_(played.shards[0].holds() && !played.rule.reduces),
      free_(played.shards.size()) {
  if (!played.options.network) return;
  network_.emplace(*played.options.network, static_cast<std::uint32_t>(played.players.size()),
                   static_cast<std::uint32_t>(played.shards.size()));
}

std::int64_t ModeTransfers::pulled(std::uint32_t worker) {
  ModePlayer& player = played_.players[worker];
  if (played_.rule.reduces) return reduced(worker);
  if (!network_) return after(played_.now, (*transfer_)(worker, player.transfers++));
  if (!served_) return std::max(played_.now, player.meets_until);
  const Network::End server = network_->server(0);
  const std::uint64_t bytes = player.parts[0].bytes = bytes_of(worker, 0);
  return network_->receive(server, worker, bytes, network_->send(server, bytes, played_.now));
}

std::int64_t ModeTransfers::reduced(std::uint32_t worker) {
  ModePlayer& player = played_.players[worker];
  reduce();
  player.parts[0].bytes = bytes_of(worker, 0);
  return std::max({played_.now, reduced_, player.meets_until});
}

void ModeTransfers::reduce() {
  if (!played_.rule.reduces || played_.updates() == reductions_) return;
  reductions_ = played_.updates();
  reduced_ = ring();
}

std::int64_t ModeTransfers::ring() {
  std::vector<Network::End> there;
  std::uint64_t most = 0;
  for (std::uint32_t w = 0; w < played_.players.size(); ++w) {
    if (!played_.members.there(w)) continue;
    there.push_back(w);
    most = std::max(most, played_.players[w].parts[0].bytes);
  }
  if (there.size() < 2) return played_.now;
  if (network_) return network_->average(there, most, played_.now);
  ModePlayer& first = played_.players[there[0]];
  const auto k = static_cast<double>(there.size());
  const auto transfer = static_cast<double>((*transfer_)(there[0], first.transfers++));
  return after(played_.now, std::llround(2 * (k - 1) / k * transfer));
}

void ModeTransfers::give(std::uint32_t worker, std::size_t shard) {
  const Network::End server = network_->server(static_cast<std::uint32_t>(shard));
  const std::uint64_t bytes = bytes_of(worker, shard);
  played_.players[worker].parts[shard].bytes = bytes;
  played_.enter(network_->send(server, bytes, played_.now), ModeEvent::come, worker, shard);
}

std::int64_t ModeTransfers::come(std::uint32_t worker, std::size_t shard) {
  const Network::End server = network_->server(static_cast<std::uint32_t>(shard));
  const std::uint64_t bytes = played_.players[worker].parts[shard].bytes;
  return network_->receive(server, worker, bytes, played_.now);
}

void ModeTransfers::send(std::uint32_t worker, std::int64_t due) {
  ModePlayer& player = played_.players[worker];
  const std::size_t shards = played_.shards.size();
  player.sent_off = player.left = shards;
  player.sent = player.lease;
  for (ModePlayer::Part& part : player.parts) part.coming = true;
  if (shards > 1) played_.under_way += shards;
  if (played_.rule.reduces || (network_ && !served_)) {
    played_.enter(due, ModeEvent::arrive, worker, 0);
  } else if (network_) {
    send_over_links(worker, due);
  } else {
    send_parts(worker, due);
  }
}

// Each worker sends another server's part first, so that they do not all come to the same one.
void ModeTransfers::send_parts(std::uint32_t worker, std::int64_t due) {
  const std::int64_t time = (*transfer_)(worker, played_.players[worker].transfers++);
  const std::size_t shards = played_.shards.size();
  std::size_t sent = 0;  // parameters
  for (std::size_t k = 0; k < shards; ++k) {
    const std::size_t shard = (worker + k) % shards;
    sent += played_.shards.size(shard);
    played_.enter(after(due, share(time, sent)), ModeEvent::arrive, worker, shard);
  }
}

void ModeTransfers::send_over_links(std::uint32_t worker, std::int64_t due) {
  const std::size_t shards = played_.shards.size();
  for (std::size_t k = 0; k < shards; ++k) {
    const std::size_t shard = (worker + k) % shards;
    const std::uint64_t bytes = played_.players[worker].parts[shard].bytes;
    const std::int64_t reached = network_->send(worker, bytes, due);
    played_.enter(reached, ModeEvent::reach, worker, shard);
  }
}

void ModeTransfers::reach(std::uint32_t worker, std::size_t shard) {
  const Network::End server = network_->server(static_cast<std::uint32_t>(shard));
  const std::uint64_t bytes = played_.players[worker].parts[shard].bytes;
  const std::int64_t there = network_->receive(worker, server, bytes, played_.now);
  played_.enter(there, ModeEvent::arrive, worker, shard);
}

void ModeTransfers::arrive(std::uint32_t worker, std::size_t shard) {
  ModePlayer& player = played_.players[worker];
  if (player.sent_off-- == played_.shards.size()) {
    player.update_time = (*update_)(worker, player.updates++);
    played_.telemetry.update_seconds.add(in_seconds(player.update_time));
    played_.telemetry.attempt_seconds.add(in_seconds(player.update_time));
  }
  const std::int64_t begun = served_ ? std::max(played_.now, free_[shard]) : played_.now;
  free_[shard] = after(begun, share(player.update_time, played_.shards.size(shard)));
  played_.enter(free_[shard], ModeEvent::push, worker, shard);
}

std::int64_t ModeTransfers::meet(std::span<const modes::Node> nodes) {
  return network_ ? network_->average(nodes, bytes(), played_.now) : played_.now;
}

std::int64_t ModeTransfers::lend(std::uint32_t from, std::uint32_t to) {
  if (!network_) {
    return after(played_.now, (*transfer_)(from, played_.players[from].transfers++));
  }
  return network_->receive(from, to, bytes(), network_->send(from, bytes(), played_.now));
}

void ModeTransfers::cut(std::uint32_t worker) {
  if (network_) network_->cut(worker, played_.now);
}

std::uint64_t ModeTransfers::bytes() const { return sizeof(float) * played_.dimension(); }

// Of what the worker has pulled from a server, and will push to it: the parameters, and the
// distinct rows of its batch with their ids.
std::uint64_t ModeTransfers::bytes_of(std::uint32_t worker, std::size_t shard) const {
  std::uint64_t all = sizeof(float) * played_.shards.size(shard);
  const RowKeys& keys = played_.players[worker].rows.keys;
  std::size_t first = 0;
  for (std::size_t t = 0; t < keys.parts.size(); ++t) {
    const std::uint64_t row = sizeof(float) * played_.options.tables[t]->dim();
    const auto begin = keys.ids.begin() + static_cast<std::ptrdiff_t>(first);
    const std::size_t count = keys.parts[t].count;
    const auto of_shard = [&](std::uint64_t id) { return played_.shards.rows()(t, id) == shard; };
    const auto rows = played_.shards.size() == 1
                          ? count
                          : static_cast<std::size_t>(std::count_if(
                                begin, begin + static_cast<std::ptrdiff_t>(count), of_shard));
    all += rows * (row + sizeof(std::uint64_t));
    first += count;
  }
  return all;
}

std::int64_t ModeTransfers::share(std::int64_t time, std::size_t parameters) const {
  if (parameters == played_.dimension()) return time;
  return std::llround(double(time) * double(parameters) / double(played_.dimension()));
}

}  // namespace leashed
