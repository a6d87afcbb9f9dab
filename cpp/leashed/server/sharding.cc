#include "leashed/server/sharding.h"

#include <algorithm>
#include <numeric>

namespace leashed {
namespace {

std::vector<ShardSpan> parts_of(std::span<const std::size_t> ends) {
  std::vector<ShardSpan> parts;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    parts.push_back({begin, end});
    begin = end;
  }
  return parts;
}

// Joins what lies side by side; leaves out what is empty.
void add(std::vector<ShardSpan>& shard, ShardSpan part) {
  if (part.begin == part.end) return;
  if (!shard.empty() && shard.back().end == part.begin) {
    shard.back().end = part.end;
  } else {
    shard.push_back(part);
  }
}

double imbalance(std::span<const double> loads, double heaviest_part) {
  const double mean = std::accumulate(loads.begin(), loads.end(), 0.0) / double(loads.size());
  const double bound = std::max(mean, heaviest_part);
  return bound > 0 ? *std::max_element(loads.begin(), loads.end()) / bound : 1;
}

}  // namespace

std::size_t Sharding::size(std::size_t shard) const {
  std::size_t size = 0;
  for (const ShardSpan& span : shards[shard]) size += span.end - span.begin;
  return size;
}

Sharding layerwise(std::span<const std::size_t> ends, std::size_t shards) {
  const std::vector<ShardSpan> parts = parts_of(ends);
  Sharding made{std::vector<std::vector<ShardSpan>>(shards), 1};
  std::vector<double> loads(shards);
  double heaviest = 0;
  for (std::size_t s = 0; s < shards; ++s) {
    for (std::size_t k = parts.size() * s / shards; k < parts.size() * (s + 1) / shards; ++k) {
      add(made.shards[s], parts[k]);
      heaviest = std::max(heaviest, double(parts[k].end - parts[k].begin));
    }
    loads[s] = double(made.size(s));
  }
  made.imbalance = imbalance(loads, heaviest);
  return made;
}

Sharding memorywise(std::size_t dimension, std::size_t shards) {
  Sharding made{std::vector<std::vector<ShardSpan>>(shards), 1};
  std::vector<double> loads(shards);
  const std::size_t each = dimension / shards, more = dimension % shards;
  std::size_t begin = 0;
  for (std::size_t s = 0; s < shards; ++s) {
    const std::size_t end = begin + each + (s < more ? 1 : 0);
    add(made.shards[s], {begin, end});
    loads[s] = double(end - begin);
    begin = end;
  }
  // No shard can have less than a whole parameter more than another.
  made.imbalance = imbalance(loads, loads.front());
  return made;
}

Sharding packed(std::span<const std::size_t> ends, std::span<const double> costs,
                std::size_t shards) {
  const std::vector<ShardSpan> parts = parts_of(ends);
  std::vector<std::size_t> order(parts.size()), shard_of(parts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  std::vector<double> loads(shards);
  for (const std::size_t k : order) {
    const auto least = std::min_element(loads.begin(), loads.end());
    shard_of[k] = static_cast<std::size_t>(least - loads.begin());
    *least += costs[k];
  }
  Sharding made{std::vector<std::vector<ShardSpan>>(shards), 1};
  for (std::size_t k = 0; k < parts.size(); ++k) add(made.shards[shard_of[k]], parts[k]);
  made.imbalance = imbalance(loads, order.empty() ? 0 : costs[order.front()]);
  return made;
}

}  // namespace leashed
