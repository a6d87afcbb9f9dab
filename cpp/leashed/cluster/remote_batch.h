// One batch's rows, as RemoteRows asks embedding servers for them and lays them out
// (cluster/remote_rows.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/cluster/asked_pool.h"
#include "leashed/cluster/remote_rows.h"

namespace leashed {

// One batch's rows: of each table those of one server after those of another.
struct RemoteRows::RemoteBatch final : FoundRows {
  RemoteBatch(std::size_t tables, std::size_t features, std::size_t servers)
      : FoundRows(tables, features),
        parts(servers),
        first(tables),
        shown(tables),
        ranks(tables),
        spots(tables),
        pointers(tables),
        gradients(tables),
        rows(tables) {}

  struct Part {
    std::vector<std::uint64_t> ask;  // LookupHead, counts, ids
    std::size_t next = 0;            // where the next id goes
    std::vector<std::byte> pools;    // that are asked for
    AlignedArray<float> values;
    std::size_t floats = 0;                          // of these, and of the gradients
    std::size_t bytes = 0;                           // of the values, with what is told of winners
    bool there = false;                              // the rows
    std::uint64_t boot = 0;                          // of the server that has them under the ticket
    std::vector<std::span<const std::byte>> pushed;  // where the gradients lie, behind their head
    PushHead head{};
  };
  std::vector<Part> parts;           // by server
  std::vector<std::size_t> earlier;  // by table: ids of features that are not pooled
  // By table and server, behind them the count: of ids, and of those whose rows are shown.
  std::vector<std::vector<std::uint32_t>> first, shown;
  // Of tables that are not whole, by distinct id: its server, and in the end its place among what
  // is shown; and where pools find it.
  std::vector<std::vector<std::uint32_t>> ranks;
  std::vector<std::vector<AskedPool::Spot>> spots;
  std::vector<std::vector<const float*>> pointers;
  std::vector<AlignedArray<float>> gradients;
  std::vector<TableRows> rows;
  std::vector<bool> pooled;      // by feature; empty: none is
  std::vector<AskedPool> pools;  // of those that are
  std::vector<IdColumn> columns;
  std::vector<AskedPool::Reply> replies;  // by server
  std::uint64_t ticket = 0;
  std::size_t size = 0;  // examples
  bool asked = false;
  std::size_t under_way = 0;  // operations that use it

  bool there() const { return std::ranges::all_of(parts, &Part::there); }
};

// The batch that an engine's BatchRows stands for now: while the push of one is under way it stands
// for another.
struct RemoteRows::Held final : BatchRows {
  std::unique_ptr<RemoteBatch> batch;
};

}  // namespace leashed
