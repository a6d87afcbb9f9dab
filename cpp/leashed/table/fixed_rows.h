// Which rows the ids of a fixed table have: all ids, or those of some of the shards by which
// RowPlacement spreads them, one after the other in their order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "leashed/table/row_placement.h"

namespace leashed {

class FixedRows {
 public:
  static constexpr std::size_t kShards = RowPlacement::kShards;

  // ids: from 0 on, of all shards.
  FixedRows(std::uint64_t ids, const RowPlacement::Shards& here) : ids_(ids), all_(here.all()) {
    for (std::size_t shard = 0; shard < kShards; ++shard) {
      places_[shard] = here[shard] ? static_cast<std::uint16_t>(count_) : kElsewhere;
      if (here[shard]) shards_[count_++] = static_cast<std::uint16_t>(shard);
    }
  }

  std::size_t count() const {
    std::size_t of_last = 0;
    while (of_last < count_ && shards_[of_last] < ids_ % kShards) ++of_last;
    return ids_ / kShards * count_ + of_last;
  }
  // Of a shard, wherever it is.
  std::size_t count_of(std::size_t shard) const {
    return ids_ / kShards + (shard < ids_ % kShards ? 1 : 0);
  }
  bool all() const { return all_; }
  // Of an id that is one of the table's: whether it has its row with others.
  bool is_elsewhere(std::uint64_t id) const {
    return !all_ && id < ids_ && places_[id % kShards] == kElsewhere;
  }
  bool has(std::uint64_t id) const { return id < ids_ && !is_elsewhere(id); }
  // Of an id that it has.
  std::uint32_t row(std::uint64_t id) const {
    if (all_) return static_cast<std::uint32_t>(id);
    return static_cast<std::uint32_t>(id / kShards * count_ + places_[id % kShards]);
  }
  std::uint64_t id(std::uint32_t row) const {
    if (all_) return row;
    return row / count_ * kShards + shards_[row % count_];
  }

 private:
  static constexpr std::uint16_t kElsewhere = ~std::uint16_t{0};

  std::uint64_t ids_;
  bool all_;
  std::size_t count_ = 0;                      // shards that are here
  std::array<std::uint16_t, kShards> shards_;  // these
  std::array<std::uint16_t, kShards> places_;  // of all, among these
};

}  // namespace leashed
