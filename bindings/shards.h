// Which parameters each of several servers has, from Python.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/cluster/mode_shards.h"
#include "leashed/server/sharding.h"

namespace leashed {

using PySpans = std::vector<std::pair<std::size_t, std::size_t>>;

// What its functions make is whole; empty: one server has everything.
inline Sharding to_sharding(const std::vector<PySpans>& given, std::size_t dimension) {
  if (given.empty()) return memorywise(dimension, 1);
  Sharding sharding{{}, 1};
  for (const PySpans& shard : given) {
    auto& spans = sharding.shards.emplace_back();
    for (const auto& [begin, end] : shard) {
      if (begin > end || end > dimension) throw Error("shards must be of the parameters");
      spans.push_back({begin, end});
    }
  }
  return sharding;
}

inline ModeShards to_mode_shards(const std::string& mode, const std::vector<PySpans>& given,
                                 std::size_t dimension) {
  std::vector<std::vector<ShardSpan>> all;
  for (const PySpans& shard : given) {
    auto& spans = all.emplace_back();
    for (const auto& [begin, end] : shard) spans.push_back({begin, end});
  }
  return mode_shards(mode, std::move(all), dimension);
}

}  // namespace leashed
