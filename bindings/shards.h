// Which parameters each of several servers has, from Python.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "leashed/cluster/mode_shards.h"

namespace leashed {

using PySpans = std::vector<std::pair<std::size_t, std::size_t>>;

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
