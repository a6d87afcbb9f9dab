#include "leashed/server/shards.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "leashed/base/error.h"

namespace leashed {

Deciding deciding(const std::string& mode) {
  static const std::map<std::string, Deciding> kinds = {
      {"asp", Deciding::itself},       {"bsp", Deciding::itself},
      {"gba", Deciding::itself},       {"shat", Deciding::itself},
      {"shat_root", Deciding::itself}, {"ensemble", Deciding::itself},
      {"easgd", Deciding::itself},     {"ssp", Deciding::by_first},
      {"hop_bs", Deciding::by_first},  {"dssp", Deciding::by_first},
      {"sync", Deciding::alike},       {"hop_bw", Deciding::alike},
      {"local_sgd", Deciding::alike},  {"switching", Deciding::alike},
      {"automatic", Deciding::alike},
  };
  const auto found = kinds.find(mode);
  if (found != kinds.end()) return found->second;
  throw Error("shards must be 1 with mode " + mode +
              ", whose workers send each other what they have and no server anything");
}

Choice following(const Choice& mode, Deciding by) {
  if (by == Deciding::alike) return mode;
  Choice other = mode;
  other.settings["examples"] = 0;
  other.settings["term_ns"] = 0;
  other.settings["follows"] = 1;
  return other;
}

void require_parts(const Rule& rule, const StalenessPolicy& staleness, const std::string& what) {
  if (staleness.statistics()) {
    throw Error(what +
                " must be 1 with a staleness policy that adapts, since each server's is its own");
  }
  if (staleness.stage_aware()) {
    throw Error(what +
                " must be 1 with a staleness policy by stages, which goes by the norms of whole "
                "variables' updates");
  }
  if (rule.clips_norm()) {
    throw Error(what + " must be 1 with clip_norm, since no server has the whole gradient");
  }
}

namespace {

Sharding without_empty(Sharding sharding) {
  std::erase_if(sharding.shards, [](const auto& spans) { return spans.empty(); });
  return sharding;
}

}  // namespace

// tables: the servers of whole ones; empty: they are spread.
RowPlacement Shards::placement(const RowHolder* rows, const std::vector<std::uint32_t>& tables,
                               std::size_t servers) {
  std::vector<RowPlacement::PlacedTable> placed;
  for (std::size_t t = 0; rows && t < rows->tables().size(); ++t) {
    placed.push_back(
        {rows->tables()[t]->grows(), tables.empty() ? RowPlacement::kSpread : tables[t]});
  }
  return {std::move(placed), RowPlacement::evenly(servers)};
}

Shards::Shards(const Choice& mode, const DisciplineContext& context, Sharding sharding,
               RowHolder* rows, const std::vector<std::uint32_t>& tables)
    : Shards(context, without_empty(std::move(sharding)), rows, tables) {
  const std::size_t servers = sharding_.shards.size();
  const Deciding by = servers == 1 ? Deciding::itself : deciding(mode.name);
  if (servers > 1) require_parts(context.rule, context.staleness, "shards");
  agree_ = by == Deciding::alike;
  // Which rows a worker pulls, its batch says.
  first_grants_ = by == Deciding::by_first || (servers > 1 && by == Deciding::itself && rows);
  for (std::size_t s = 0; s < servers; ++s) {
    add(modes::make_server_policy(s == 0 ? mode : following(mode, by)), context, rows);
  }
}

Shards::Shards(const modes::ServerPolicy& machine, const DisciplineContext& context,
               Sharding sharding, RowHolder* rows, const std::vector<std::uint32_t>& tables)
    : Shards(context, without_empty(std::move(sharding)), rows, tables) {
  agree_ = sharding_.shards.size() > 1;
  if (agree_) require_parts(context.rule, context.staleness, "shards");
  for (std::size_t s = 0; s < sharding_.shards.size(); ++s) add(machine, context, rows);
}

void Shards::add(const modes::ServerPolicy& machine, const DisciplineContext& context,
                 RowHolder* rows) {
  if (sharding_.shards.size() == 1) {
    servers_.push_back(std::make_unique<ParameterServer>(machine, context, rows));
    return;
  }
  AlignedArray<float> part(context.dimension);
  const std::size_t s = servers_.size();
  gather(s, context.initial, part.data());
  const DisciplineContext own{part.data(),     size(s),      context.workers,
                              context.readers, context.rule, context.staleness};
  servers_.push_back(std::make_unique<ParameterServer>(machine, own, rows));
}

void Shards::gather(std::size_t shard, const float* whole, float* part) const {
  for (const ShardSpan& span : spans(shard)) {
    part = std::copy(whole + span.begin, whole + span.end, part);
  }
}

void Shards::scatter(std::size_t shard, const float* part, float* whole) const {
  for (const ShardSpan& span : spans(shard)) {
    const std::size_t size = span.end - span.begin;
    std::copy_n(part, size, whole + span.begin);
    part += size;
  }
}

std::uint64_t Shards::updates() {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (const auto& server : servers_) least = std::min(least, server->holder().pull().t());
  return least;
}

std::size_t Shards::live_vectors() {
  std::size_t sum = 0;
  for (const auto& server : servers_) sum += server->holder().live_vectors();
  return sum;
}

std::size_t Shards::peak_vectors() {
  std::size_t sum = 0;
  for (const auto& server : servers_) sum += server->holder().peak_vectors();
  return sum;
}

}  // namespace leashed
