// How parameters are spread over several servers (shat, section 3.3): what each of them holds.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace leashed {

// Parameters [begin, end).
struct ShardSpan {
  std::size_t begin, end;
};

struct Sharding {
  // Of each shard, ascending and apart; all shards together are the whole vector. One may be empty.
  std::vector<std::vector<ShardSpan>> shards;
  // The largest load over what the largest is at least, however the parts that are not divided are
  // spread: the mean load, or the heaviest part. 1 at best.
  double imbalance;

  std::size_t size(std::size_t shard) const;  // parameters
};

// The vector's parts end at `ends`, ascending, the last one's at its dimension; parts may be empty.

// As many parts for each shard, in their order, as nearly as that goes; loads are parameters. With
// layers as parts, shat's layerwise sharding.
Sharding layerwise(std::span<const std::size_t> ends, std::size_t shards);
// As many parameters for each shard, in their order, wherever that cuts layers.
Sharding memorywise(std::size_t dimension, std::size_t shards);
// Longest processing time first (Graham, 1969): parts by what each costs, the dearest first, always
// to the shard with the least so far. Costs are finite and not negative, one for each part; the
// same costs give the same shards.
Sharding packed(std::span<const std::size_t> ends, std::span<const double> costs,
                std::size_t shards);

}  // namespace leashed
