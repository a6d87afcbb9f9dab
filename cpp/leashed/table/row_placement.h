// Which of several servers has the row of an id: a table is whole on one of them, or its ids are
// spread in 256 shards, of which each server has some.
//
// Ids of a fixed table are spread by their remainder; those of a growing one by a hash that has
// nothing to do with the one by which IdIndex chooses among its own shards. By that one a server's
// ids would come to a few of these alone, and the memory of the others would stay empty.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace leashed {

class RowPlacement {
 public:
  static constexpr std::size_t kShards = 256;
  static constexpr std::uint32_t kSpread = ~std::uint32_t{0};  // in place of a server
  using Servers = std::array<std::uint16_t, kShards>;
  using Shards = std::bitset<kShards>;

  struct PlacedTable {
    bool grows;
    std::uint32_t server;  // that has all of it, or kSpread
  };
  // servers: of each shard of those that are spread.
  RowPlacement(std::vector<PlacedTable> tables, const Servers& servers)
      : tables_(std::move(tables)), servers_(servers) {}

  // Each server has as many shards, or one more.
  static Servers evenly(std::size_t servers) {
    Servers of;
    for (std::size_t shard = 0; shard < kShards; ++shard) {
      of[shard] = static_cast<std::uint16_t>(shard % servers);
    }
    return of;
  }
  static std::size_t shard_of(bool grows, std::uint64_t id) {
    return (grows ? hash(id) : id) % kShards;
  }

  std::size_t tables() const { return tables_.size(); }
  std::size_t operator()(std::size_t table, std::uint64_t id) const {
    return server_of(table, shard_of(tables_[table].grows, id));
  }
  // Whether the server has any row of the table.
  bool has(std::size_t table, std::size_t server) const { return shards(table, server).any(); }
  // Of a table those that the server has: of one that is whole all or none.
  Shards shards(std::size_t table, std::size_t server) const {
    Shards found;
    for (std::size_t shard = 0; shard < kShards; ++shard) {
      found[shard] = server_of(table, shard) == server;
    }
    return found;
  }

 private:
  std::size_t server_of(std::size_t table, std::size_t shard) const {
    const std::uint32_t server = tables_[table].server;
    return server == kSpread ? servers_[shard] : server;
  }
  // Austin Appleby's finaliser of MurmurHash3.
  static std::uint64_t hash(std::uint64_t id) {
    id = (id ^ (id >> 33)) * 0xFF51AFD7ED558CCD;
    id = (id ^ (id >> 33)) * 0xC4CEB9FE1A85EC53;
    return id ^ (id >> 33);
  }

  std::vector<PlacedTable> tables_;
  Servers servers_;
};

}  // namespace leashed
