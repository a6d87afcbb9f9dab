#include "leashed/cluster/mode_shards.h"

#include <utility>

namespace leashed {

ModeShards mode_shards(const std::string& mode, std::vector<std::vector<ShardSpan>> spans,
                       std::size_t dimension) {
  std::vector<bool> had(dimension);
  std::size_t all = 0;
  for (const auto& shard : spans) {
    if (shard.empty()) {
      throw Error("policy servers must be no more than parts of the model, so that each has one");
    }
    for (const ShardSpan& span : shard) {
      for (std::size_t i = span.begin; i < span.end; ++i, ++all) {
        if (i >= dimension || had[i]) throw Error("shards must be of the parameters, each once");
        had[i] = true;
      }
    }
  }
  if (all != dimension) throw Error("shards must have all of the parameters");
  const Deciding by = spans.size() == 1 ? Deciding::itself : deciding(mode);
  return {{std::move(spans), 1}, by};
}

}  // namespace leashed
