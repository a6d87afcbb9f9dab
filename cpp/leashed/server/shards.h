// The parameters on several servers: each has its part of them, with versions, buffers and a
// machine of its own, so staleness is each part's. They know nothing of each other. A worker pushes
// to and pulls from all of them; the batch that it computes is the one that the first leases to it,
// and the others' leases are tickets alone, of data without an end.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "leashed/base/choice.h"
#include "leashed/discipline/discipline.h"
#include "leashed/server/parameter_server.h"
#include "leashed/server/sharding.h"

namespace leashed {

class Shards {
 public:
  // Empty shards take no part. Of more than one, throws Error where a server has to know more than
  // its part: of modes whose updates are of several pushes, or of peers' models, or that predict
  // times, of rules that clip by the norm of the whole gradient, and where there are rows of tables
  // (null: none).
  Shards(const Choice& mode, const DisciplineContext& context, Sharding sharding,
         RowHolder* rows = nullptr);

  std::size_t size() const { return servers_.size(); }
  ParameterServer& operator[](std::size_t shard) { return *servers_[shard]; }
  const std::vector<ShardSpan>& spans(std::size_t shard) const { return sharding_.shards[shard]; }
  std::size_t size(std::size_t shard) const { return sharding_.size(shard); }

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
  Sharding sharding_;  // without the empty ones
  const std::size_t dimension_;
  std::vector<std::unique_ptr<ParameterServer>> servers_;
};

}  // namespace leashed
