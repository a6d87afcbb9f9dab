// Which row belongs to which 64-bit id, where any id may come: found without a lock and without
// waiting, while others insert, evict and rebuild (docs/tables.md has the argument,
// models/id_index.pml the protocol).
//
// Ids are spread over shards, each a segment of slots with linear probing. A slot is empty, then
// has an id, then a tomb, and is never used again as long as its segment lives; its row is written
// before its id. So an id that is found has its own row, and nothing needs to be looked at twice.
// Inserting, evicting and rebuilding take the shard's lock, and who does not get it at once lets it
// be this time. A row or segment that is out of reach is used again when nobody can hold it any
// more (epochs.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/table/epochs.h"
#include "leashed/table/reserved.h"
#include "leashed/table/rows.h"

namespace leashed {

class IdIndex {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  struct Settings {
    std::size_t rows;     // of all shards together, at most
    unsigned shard_bits;  // 2^so many shards
    std::size_t reserve;  // rows of each shard that are kept free, where some can be evicted
  };
  // What a row holds when its id is inserted: θ and the states.
  using Initialise = std::function<void(std::uint64_t id, float* values)>;
  // Of rows to evict, those of the largest score. Read while others write; null: none ever is.
  using Score = std::function<float(RowHead& head, const float* values)>;

  IdIndex(Rows& rows, Epochs& epochs, const Settings& settings, Initialise initialise, Score score);
  ~IdIndex();

  // Rows to be made for these settings.
  static std::size_t rows_of(const Settings& settings);
  // Bytes that it keeps, at most, where so many rows are in so many shards.
  static std::size_t most_bytes(const Settings& settings);

  // For readers that have joined. The row of that id; kNone: it has none.
  std::uint32_t find(std::uint64_t id) const;
  // Brings the id's slot near; find() comes soon.
  void prefetch(std::uint64_t id) const;

  enum class Outcome {
    known,  // it had one, found only now
    inserted,
    deferred,  // somebody else changes its shard
    refused,   // there is no room now
  };
  struct Entry {
    std::uint32_t row;
    Outcome outcome;
  };
  // For who has not found it; its row was touched then, in that period of SWAP's. Takes no rows
  // beyond the settings', and for slots no more than most_bytes().
  Entry insert(std::uint64_t id, std::uint16_t touched, std::uint16_t period = 0);

  struct Counts {
    std::uint64_t inserted = 0, evicted = 0, deferred = 0, refused = 0, rebuilt = 0;
    std::size_t live = 0, bytes = 0;  // rows, and bytes, now
  };
  Counts counts() const;
  // f(id, row) of each id, which is inserted before or while it runs, and not evicted before. For
  // readers that have joined.
  void each(const std::function<void(std::uint64_t, std::uint32_t)>& f) const;

 private:
  struct Segment;
  struct alignas(kCacheLine) Shard;

  static std::size_t segment_bytes(const Settings& settings);
  static std::size_t shard_bytes(const Settings& settings);
  std::size_t shard_of(std::uint64_t hash) const;
  Segment current(std::size_t shard) const;
  bool make_room(Shard& shard);
  std::byte* place_for(const Shard& shard, unsigned bits) const;
  bool rebuild(Shard& shard, unsigned bits);
  void reclaim(Shard& shard);
  void evict(Shard& shard, std::uint32_t newest);
  std::uint32_t take_row(Shard& shard);

  Rows& rows_;
  Epochs& epochs_;
  const Settings settings_;
  const Initialise initialise_;
  const Score score_;
  const std::size_t rows_per_shard_, segment_bytes_;  // of one shard
  const Reserved segments_;
  // Of each shard. Release where it is stored, acquire where it is loaded.
  const std::unique_ptr<std::atomic<std::uintptr_t>[]> current_;
  const std::unique_ptr<Shard[]> shards_;
};

}  // namespace leashed
