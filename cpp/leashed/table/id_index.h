// Which row belongs to which 64-bit id, where any id may come: found without a lock and without
// waiting, while others insert, evict and rebuild (docs/tables.md has the argument,
// models/id_index.pml the protocol).
//
// Ids are spread over shards, each a segment of slots with linear probing. A slot is empty, then
// has an id, then a tomb, and is never used again as long as its segment lives; its row is written
// before its id. So an id that is found has its own row.
// Inserting, evicting and rebuilding take the shard's lock, and who does not get it at once lets it
// be this time. The memory of a segment before is used again without waiting for anybody: who looks
// up there meanwhile sees that the shard is being rebuilt, and looks again. A row that is out of
// reach is used again when nobody holds it (row_holds.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/table/reserved.h"
#include "leashed/table/row_holds.h"
#include "leashed/table/rows.h"

namespace leashed {

class IdIndex {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  struct Settings {
    std::size_t rows;     // of all shards together, at most
    unsigned shard_bits;  // 2^so many shards
    // Rows of each shard that are kept free, or wait to be, where some can be evicted; 0: none can.
    std::size_t reserve;
  };
  // What a row holds when its id is inserted: θ and the states. Called by any thread.
  using Initialise = std::function<void(std::uint64_t id, float* values)>;
  // Of rows to evict, those of the largest score. Read while others write, by any thread, also of
  // rows that begin anew for another id meanwhile, which are not evicted then.
  using Score = std::function<float(RowHead& head, const float* values)>;
  // Which row an id has, and the how manieth of its shard's insertions, modulo 2^32, has given it:
  // an id that was evicted and has come back to the same row has another one. 0: of the ids that
  // always have a row.
  struct Handle {
    std::uint32_t row, incarnation;
  };

  // holds, score: null where no row is ever evicted.
  IdIndex(Rows& rows, const Settings& settings, Initialise initialise, RowHolds* holds = nullptr,
          Score score = nullptr);
  ~IdIndex();

  // Rows to be made for these settings.
  static std::size_t rows_of(const Settings& settings);
  // Bytes that it keeps, at most, where so many rows are in so many shards.
  static std::size_t most_bytes(const Settings& settings);

  // The row of that id; kNone: it has none. Where rows are evicted it may be another id's by then,
  // unless the caller is in a section of those who read rows, or holds it.
  std::uint32_t find(std::uint64_t id) const {
    if (is_special(id)) return special_row(id);
    const std::uint64_t hash = mix(id);
    std::uint32_t row;
    whole(shard_of(hash), [&](Segment segment) { row = segment.find(id, hash); });
    return row;
  }
  // Brings the id's slot near; find() comes soon.
  void prefetch(std::uint64_t id) const {
    const std::uint64_t hash = mix(id);
    const Segment segment = Segment::of(current_[shard_of(hash)].segment.load(kAcquire));
    __builtin_prefetch(&segment.table[segment.first(hash)]);
  }

  // Where rows are evicted: the id's row, which the caller holds until it releases it. `row`: that
  // which find() has given. kNone: it has none.
  std::uint32_t hold(std::uint64_t id, std::uint32_t row) const {
    while (row != kNone) {
      holds_->hold(row);
      const std::uint32_t again = find(id);
      if (again == row) break;
      holds_->release(row);  // it was evicted, and may have come back elsewhere
      row = again;
    }
    return row;
  }

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
  // Of an id that was not found; its row was touched then, in that period of SWAP's. Where rows are
  // evicted the caller holds it. Takes no rows beyond the settings', and for slots no more than
  // most_bytes(). Evicts others, which nobody holds, where few rows are left, and where it may.
  // Where the thread cannot get_ready() it throws, and has changed nothing.
  Entry insert(std::uint64_t id, std::uint16_t touched, std::uint16_t period = 0,
               bool may_evict = true);
  // A thread begins rows in memory of its own: for its life that of one row, the largest of all
  // indexes, beside most_bytes(). Takes it here, or else by its first insertion. Throws
  // std::bad_alloc; insertions that follow do not.
  void get_ready() const;

  struct Counts {
    std::uint64_t inserted = 0, evicted = 0, deferred = 0, refused = 0, rebuilt = 0;
    std::size_t live = 0;  // rows that ids have now
    // Rows and bytes that have been used: their memory does not go back.
    std::size_t rows = 0, bytes = 0;
  };
  Counts counts() const;
  // f(id, handle) of each id, which is inserted before or while it runs, and not evicted before. An
  // id that is evicted and comes back meanwhile may come twice, the first time with a row that is
  // dead by then.
  void each(const std::function<void(std::uint64_t, Handle)>& f) const;

 private:
  struct alignas(kCacheLine) Shard;

  static constexpr std::uint64_t kEmpty = 0, kTomb = ~std::uint64_t{0};
  static constexpr auto kAcquire = std::memory_order_acquire, kRelease = std::memory_order_release;
  // Ids that a slot cannot hold: each has a row from the start, the first ones.
  static constexpr std::uint32_t kSpecial = 2;
  static bool is_special(std::uint64_t id) { return id == kEmpty || id == kTomb; }
  static std::uint32_t special_row(std::uint64_t id) { return id == kTomb; }
  // A permutation whose bits all depend on all of the id's (David Stafford's mix 13).
  static std::uint64_t mix(std::uint64_t id) {
    id = (id ^ (id >> 30)) * 0xBF58476D1CE4E5B9;
    id = (id ^ (id >> 27)) * 0x94D049BB133111EB;
    return id ^ (id >> 31);
  }
  static constexpr std::size_t slots(unsigned bits) { return std::size_t{1} << bits; }

  // Where the slots of a segment lie, and how many.
  struct Segment {
    // Release where they are stored, acquire where they are loaded: who sees an id sees its
    // handle, and what its row began with; who sees what a later segment has in the same memory
    // sees that the shard is being rebuilt.
    struct Slot {
      std::atomic<std::uint64_t> id;
      std::atomic<Handle> handle;  // where there is an id
    };
    static_assert(std::atomic<Handle>::is_always_lock_free && sizeof(Slot) == 16);

    // The first slot of a line: then most ids are found in one.
    static constexpr std::size_t kOfLine = kCacheLine / sizeof(Slot);

    Slot* table = nullptr;
    unsigned bits = 0;

    static std::size_t bytes(unsigned bits) { return slots(bits) * sizeof(Slot); }
    static Segment make(unsigned bits, std::byte* memory);
    // Both in one word: a segment begins at a multiple of its bytes, which are more than 64.
    std::uintptr_t word() const { return reinterpret_cast<std::uintptr_t>(table) | bits; }
    static Segment of(std::uintptr_t word) {
      return {reinterpret_cast<Slot*>(word & ~std::uintptr_t{63}),
              static_cast<unsigned>(word & 63)};
    }

    std::size_t next(std::size_t i) const { return (i + 1) & (slots(bits) - 1); }
    std::size_t first(std::uint64_t hash) const { return hash & (slots(bits) - kOfLine); }

    // Never full: who inserts leaves some slots empty, but for what is seen while it is made anew.
    std::uint32_t find(std::uint64_t id, std::uint64_t hash) const {
      std::size_t i = first(hash);
      for (std::size_t seen = 0; seen < slots(bits); ++seen, i = next(i)) {
        const std::uint64_t found = table[i].id.load(kAcquire);
        if (found == id) return table[i].handle.load(kAcquire).row;
        if (found == kEmpty) break;
      }
      return kNone;
    }
    void put(std::uint64_t id, std::uint64_t hash, Handle handle) const;
  };

  // A shard's segment, and how often it has begun to be made anew. Release where they are stored,
  // acquire where they are loaded, but for the last look at `rebuilds`, which the acquire of the
  // slots orders.
  struct alignas(16) Current {
    std::atomic<std::uintptr_t> segment{0};
    std::atomic<std::uint64_t> rebuilds{0};
  };

  // Rows of which the worst are to be evicted.
  struct Candidate {
    float score;
    std::uint32_t row;
    std::size_t slot;
  };
  struct Sample {
    std::uint64_t rebuilds = 0;  // of the shard, when they were in these slots
    std::array<Candidate, 16> candidates;
    std::size_t count = 0;
  };

  static std::size_t segment_bytes(const Settings& settings);
  static std::size_t ring_places(const Settings& settings);
  static std::size_t shard_bytes(const Settings& settings);
  std::size_t shard_of(std::uint64_t hash) const {
    return settings_.shard_bits == 0 ? 0 : hash >> (64 - settings_.shard_bits);
  }
  // What f makes of the shard's segment, where that has not been made anew meanwhile. Acquire:
  // pairs with rebuild(); who sees that it has begun for the how manieth time sees the segment of
  // the time before, or that of this one.
  template <class F>
  void whole(std::size_t shard, F&& f) const {
    const Current& at = current_[shard];
    std::uint64_t begun;
    do {
      begun = at.rebuilds.load(kAcquire);
      f(Segment::of(at.segment.load(kAcquire)));
    } while (at.rebuilds.load(std::memory_order_relaxed) != begun);
  }
  void make_room(Shard& shard);
  std::byte* place_for(const Shard& shard, unsigned bits) const;
  void rebuild(Shard& shard, unsigned bits);
  Current& current(const Shard& shard) const;
  const float* begun(std::uint64_t id) const;
  Sample sampled(Shard& shard);
  void evict(Shard& shard, Sample sample);
  std::uint32_t take_row(Shard& shard);

  Rows& rows_;
  const Settings settings_;
  const Initialise initialise_;
  RowHolds* const holds_;
  const Score score_;
  const std::size_t rows_per_shard_, segment_bytes_;  // of one shard
  // The first ones are apart, so that a table of few ids takes no huge page of the others'.
  const Reserved first_segments_, segments_;
  const std::unique_ptr<Current[]> current_;  // of each shard
  const std::unique_ptr<Shard[]> shards_;
  // The first row that has never been used. Relaxed: each number is given to one shard.
  std::atomic<std::uint32_t> next_row_{kSpecial};
};

}  // namespace leashed
