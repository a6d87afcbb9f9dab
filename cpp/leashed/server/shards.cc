#include "leashed/server/shards.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "leashed/base/error.h"

namespace leashed {
namespace {

// Modes whose machine makes an update of each push alone. (DSSP does, but lets workers ahead by the
// times of pushes: two servers may wait for two workers that wait for each other's.)
bool alone(const std::string& mode) {
  const char* const kinds[] = {"asp", "ssp", "hop_bs", "shat", "shat_root", "ensemble", "easgd"};
  return std::find(std::begin(kinds), std::end(kinds), mode) != std::end(kinds);
}

Choice endless(Choice mode) {
  mode.settings["examples"] = 0;
  return mode;
}

}  // namespace

Shards::Shards(const Choice& mode, const DisciplineContext& context, Sharding sharding,
               RowHolder* rows)
    : sharding_(std::move(sharding)), dimension_(context.dimension) {
  std::erase_if(sharding_.shards, [](const auto& spans) { return spans.empty(); });
  if (sharding_.shards.size() == 1) {
    servers_.push_back(
        std::make_unique<ParameterServer>(modes::make_server_policy(mode), context, rows));
    return;
  }
  if (!alone(mode.name)) {
    throw Error("shards must be 1 with mode " + mode.name +
                ", whose servers cannot decide without each other");
  }
  if (rows) throw Error("shards must be 1 with a model over tables");
  if (context.staleness.statistics()) {
    throw Error(
        "shards must be 1 with a staleness policy that adapts, since each server's is its own");
  }
  if (context.rule.clips_norm()) {
    throw Error("shards must be 1 with clip_norm, since no server has the whole gradient");
  }
  AlignedArray<float> part(context.dimension);
  for (std::size_t s = 0; s < sharding_.shards.size(); ++s) {
    gather(s, context.initial, part.data());
    const DisciplineContext own{part.data(),     size(s),      context.workers,
                                context.readers, context.rule, context.staleness};
    servers_.push_back(std::make_unique<ParameterServer>(
        modes::make_server_policy(s == 0 ? mode : endless(mode)), own));
  }
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
