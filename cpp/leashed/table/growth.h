// Which rows the ids of a table have, and what has been counted: as many rows as there is memory
// for, an id admitted when enough batches had it, and others evicted where they make room.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/base/choice.h"
#include "leashed/table/admission.h"
#include "leashed/table/epochs.h"
#include "leashed/table/fixed_rows.h"
#include "leashed/table/id_index.h"
#include "leashed/table/row_holds.h"
#include "leashed/table/row_placement.h"
#include "leashed/table/row_publication.h"
#include "leashed/table/rows.h"
#include "leashed/table/seats.h"

namespace leashed {

struct TableSettings {
  std::string name;           // in messages
  std::size_t dim = 0;        // floats of a row
  std::size_t rows = 0;       // 0: it grows
  std::size_t max_bytes = 0;  // of all that it keeps; 0: no limit, where rows are given
  Choice initial, rule, staleness;
  std::uint32_t admit_after = 1;  // batches that must have had an id before it gets a row
  std::string evict = "none";     // or age, or norm: which rows make room for new ones
  std::uint64_t seed = 0;
  std::uint32_t number = 0;  // among the tables of one seed
  // Whether rows have heads. Without, of a fixed table alone, nobody can tell how stale a
  // gradient is, and a row is as much shorter.
  bool versions = true;
  // Of a fixed table those whose ids have their rows here. First values, messages and files go by
  // ids, whichever row these have.
  RowPlacement::Shards shards = RowPlacement::Shards().set();
};

// Of a row of a table that would be made so. Throws Error where the rule or policy is none.
std::size_t bytes_per_row(std::size_t dim, const Choice& rule, const Choice& staleness,
                          bool versions);

struct TableStatistics {
  std::size_t rows = 0, capacity = 0;     // that ids have, and may have
  std::size_t bytes = 0, most_bytes = 0;  // of rows, index and filter
  std::size_t scratch = 0;                // that updates by calls keep beside them
  std::size_t bytes_per_row = 0;
  std::uint64_t asked = 0, found = 0;  // distinct ids of batches that train
  std::uint64_t admitted = 0, evicted = 0, rebuilt = 0;
  RowPublication updates;
};

class Growth {
 public:
  // Rows have so many floats, which `begin` fills in. Throws Error where the limit cannot hold it.
  Growth(const TableSettings& settings, std::size_t floats, IdIndex::Initialise begin, Seats& seats,
         const TableWatch& watch);

  TableStatistics statistics(const TableWatch& watch = {}) const;
  // Of the distinct ids of batches that train those that got no row for want of room, so far; waits
  // for nobody, and nobody for it.
  struct Refusals {
    std::uint64_t asked = 0, refused = 0;
  };
  Refusals refusals() const;

 private:
  friend class Table;
  friend class TableFiles;
  // Of a seat, whoever has it. Written by him alone. Relaxed: counts.
  struct alignas(kCacheLine) Counts {
    std::atomic<std::uint64_t> asked{0}, found{0}, stalest{0};
    std::array<std::atomic<std::uint64_t>, RowPublication::kSums.size()> sums{};
    std::atomic<std::size_t> scratch{0};  // bytes between two updates
  };
  static void add(std::atomic<std::uint64_t>& count, std::uint64_t n) {
    count.store(count.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }

  bool grows() const { return settings_.rows == 0; }
  bool evicts() const { return settings_.evict != "none"; }
  // Of a table that grows: the row of each id, held where it evicts; where it admits, of those that
  // have none and come often enough a new one. How many had one.
  std::size_t locate(const std::vector<std::uint64_t>& ids, std::vector<std::uint32_t>& rows,
                     bool admits, std::uint16_t period, RowPublication& missed);
  std::uint32_t find(std::uint64_t id) const { return index_ ? index_->find(id) : fixed_.row(id); }
  // In which the seat finds rows and copies them: none is another id's meanwhile.
  std::optional<Epochs::Section> read(const Seat& seat) const;
  // f(id, handle) of each row that an id has; the caller has a seat.
  template <class F>
  void each(F&& f) const {
    if (index_) return index_->each(f);
    for (std::size_t i = 0; i < capacity_; ++i) {
      const auto row = static_cast<std::uint32_t>(i);
      f(fixed_.id(row), IdIndex::Handle{row, 0});
    }
  }
  // Of one that does not: all rows are what they begin with.
  void begin_all(const TableWatch& watch);
  // Of one that grows: no id has a row. Throws, and has changed nothing.
  void clear();
  // In sixteenths of the table's rows.
  std::uint16_t time() const;
  float score(RowHead& head, const float* values) const;
  void count(const Seat& seat, const RowPublication& publication);

  const TableSettings& settings_;
  const std::size_t floats_;
  const IdIndex::Initialise begin_;
  const FixedRows fixed_;  // where it does not grow
  Seats& seats_;
  std::size_t capacity_, most_bytes_;
  IdIndex::Settings index_settings_{};
  std::unique_ptr<Rows> rows_;
  std::shared_ptr<RowHolds> holds_;  // where it evicts
  std::unique_ptr<IdIndex> index_;   // where it grows
  std::unique_ptr<Admission> admission_;
  const std::unique_ptr<Counts[]> counts_;
  // Rows updated so far, by which ages are told. Relaxed: they order nothing.
  alignas(kCacheLine) std::atomic<std::uint64_t> touched_{0};
  // Updates of rows by their staleness, in parts, of which a seat adds to one. Relaxed: counts.
  struct alignas(kCacheLine) Octaves {
    std::array<std::atomic<std::uint64_t>, RowPublication::kOctaves> counts{};
  };
  std::array<Octaves, 8> octaves_{};
};

}  // namespace leashed
