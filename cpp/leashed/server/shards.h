// The parameters on several servers: each has its part of them, with versions, buffers and a
// machine of its own, so staleness is each part's. A worker pushes to and pulls from all of them;
// the batch that it computes is the one that the first leases to it.
//
// Where every push, or so many of them, are an update, each server decides by itself: it makes its
// updates of the parts that come to it, in their order. It leases tickets without an end, and each
// push says for which batch it is (policy/coordinated.h), so a batch may be applied here and
// dropped there, but counts nowhere twice. Where workers wait for each other's clocks (SSP and its
// kin), the first lets them go on, and they pull from the others then.
//
// Where workers wait for rounds, the servers have to agree on who is in each: two that decided by
// themselves would wait for workers of which each waits for the other server, as soon as one comes
// or goes between its parts. So the others are told what the first was told, in its order
// (follower.h), and the same machine answers the same.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "leashed/base/choice.h"
#include "leashed/discipline/context.h"
#include "leashed/server/parameter_server.h"
#include "leashed/server/sharding.h"
#include "leashed/table/row_placement.h"

namespace leashed {

// How the servers of a mode decide.
enum class Deciding : std::uint8_t {
  itself,    // each server decides by itself
  by_first,  // and the first says who may go on
  alike,     // all as the first
};

// Throws Error of modes of peers.
Deciding deciding(const std::string& mode);
// The machine of a server behind the first.
Choice following(const Choice& mode, Deciding by);
// Throws Error where the rule or the staleness policy needs the whole gradient, which says that
// `what` must be 1.
void require_parts(const Rule& rule, const StalenessPolicy& staleness, const std::string& what);

class Shards {
 public:
  // Empty shards take no part. tables: of each table of `rows` the number of its server among those
  // that do; empty: its ids are spread. Of more than one, throws Error of modes of peers, who have
  // no server; of staleness policies that adapt; and of rules that clip by the norm of the whole
  // gradient.
  Shards(const Choice& mode, const DisciplineContext& context, Sharding sharding,
         RowHolder* rows = nullptr, const std::vector<std::uint32_t>& tables = {});
  // All decide as that machine does: of several a mode's whose servers decide alike.
  Shards(const modes::ServerPolicy& machine, const DisciplineContext& context, Sharding sharding,
         RowHolder* rows = nullptr, const std::vector<std::uint32_t>& tables = {});

  std::size_t size() const { return servers_.size(); }
  ParameterServer& operator[](std::size_t shard) { return *servers_[shard]; }
  const std::vector<ShardSpan>& spans(std::size_t shard) const { return sharding_.shards[shard]; }
  std::size_t size(std::size_t shard) const { return sharding_.size(shard); }
  const RowPlacement& rows() const { return rows_; }

  // The servers decide alike: they are to be told the same, in the same order.
  bool agree() const { return agree_; }
  // A worker pulls from the others once the first has granted.
  bool first_grants() const { return first_grants_; }

  void gather(std::size_t shard, const float* whole, float* part) const;
  void scatter(std::size_t shard, const float* part, float* whole) const;
  // The whole vector, of parts that may be of different versions; in `memory`, but where there is
  // one server.
  template <class PartOf>
  const float* assembled(PartOf&& part_of, AlignedArray<float>& memory) const {
    if (size() == 1) return part_of(0);
    if (memory.size() == 0) memory = AlignedArray<float>(dimension_);
    for (std::size_t s = 0; s < size(); ++s) scatter(s, part_of(s), memory.data());
    return memory.data();
  }

  // That all of them have made.
  std::uint64_t updates();
  std::size_t live_vectors();
  std::size_t peak_vectors();

 private:
  Shards(const DisciplineContext& context, Sharding sharding, RowHolder* rows,
         const std::vector<std::uint32_t>& tables)
      : sharding_(std::move(sharding)),
        dimension_(context.dimension),
        rows_(placement(rows, tables, sharding_.shards.size())) {}
  static RowPlacement placement(const RowHolder* rows, const std::vector<std::uint32_t>& tables,
                                std::size_t servers);

  // The next one's.
  void add(const modes::ServerPolicy& machine, const DisciplineContext& context, RowHolder* rows);

  Sharding sharding_;  // without the empty ones
  const std::size_t dimension_;
  const RowPlacement rows_;
  bool agree_ = false, first_grants_ = false;
  std::vector<std::unique_ptr<ParameterServer>> servers_;
};

}  // namespace leashed
