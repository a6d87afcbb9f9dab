// How a mode's parameters lie on its policy servers, as who trains by it has to know.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/server/shards.h"
#include "leashed/update/layout.h"

namespace leashed {

struct ModeShards {
  Sharding sharding;
  Deciding by = Deciding::itself;

  // One server that has all of them.
  static ModeShards whole(std::size_t dimension) { return {{{{{0, dimension}}}, 1}, {}}; }

  std::size_t servers() const { return sharding.shards.size(); }
  std::size_t size(std::size_t server) const { return sharding.size(server); }
  std::size_t dimension() const;
  void gather(std::size_t server, const float* all, float* part) const {
    for (const ShardSpan& span : sharding.shards[server]) {
      part = std::copy(all + span.begin, all + span.end, part);
    }
  }
  void scatter(std::size_t server, const float* part, float* all) const {
    for (const ShardSpan& span : sharding.shards[server]) {
      std::copy_n(part, span.end - span.begin, all + span.begin);
      part += span.end - span.begin;
    }
  }

  // The same of θ and a rule's states, of which each is cut alike: so a server's part is laid out
  // as the whole, without norms of variables.
  Layout part_of(std::size_t server, const Layout& whole) const {
    return {size(server), whole.states};
  }
  void gather(std::size_t server, const Layout& whole, const float* all, float* part) const;
  void scatter(std::size_t server, const Layout& whole, const float* part, float* all) const;
};

// Of a mode on servers that have those parameters. Throws Error where one has none, or they are not
// all of them.
ModeShards mode_shards(const std::string& mode, std::vector<std::vector<ShardSpan>> spans,
                       std::size_t dimension);

}  // namespace leashed
