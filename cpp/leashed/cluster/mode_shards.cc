#include "leashed/cluster/mode_shards.h"

#include <utility>

namespace leashed {

std::size_t ModeShards::dimension() const {
  std::size_t all = 0;
  for (std::size_t server = 0; server < servers(); ++server) all += size(server);
  return all;
}

void ModeShards::gather(std::size_t server, const Layout& whole, const float* all,
                        float* part) const {
  const Layout of = part_of(server, whole);
  std::fill_n(part, of.length(), 0.0f);  // between the states, too
  for (std::size_t i = 0; i <= whole.states; ++i) {
    gather(server, all + i * whole.stride(), part + i * of.stride());
  }
}

void ModeShards::scatter(std::size_t server, const Layout& whole, const float* part,
                         float* all) const {
  const Layout of = part_of(server, whole);
  for (std::size_t i = 0; i <= whole.states; ++i) {
    scatter(server, part + i * of.stride(), all + i * whole.stride());
  }
}

ModeShards mode_shards(const std::string& mode, std::vector<std::vector<ShardSpan>> spans,
                       std::size_t dimension) {
  std::vector<bool> had(dimension);
  std::size_t all = 0;
  for (const auto& shard : spans) {
    if (shard.empty()) {
      throw Error("policy servers must be no more than parts of the model, so that each has one");
    }
    for (const ShardSpan& span : shard) {
      if (span.begin > span.end) throw Error("shards must begin before they end");
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
