// When a row that has been evicted can be another id's. Who uses rows holds each of them, for as
// long as he does; what nobody holds can be used again at once, however long somebody sleeps who
// holds others. Who only copies rows, one after the other, holds none: he says from when on he
// reads, and what was evicted after that waits for him (docs/tables.md has the argument,
// models/id_index.pml the protocol).
//
//   user:    find; hold; find again, and it is the same row; use ...; release
//   reader:  begin a section; find ...; copy ...; end it
//   writer:  take out of reach; n = leave(); ... is_free(row, n): nobody has it any more
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "leashed/table/epochs.h"
#include "leashed/table/reserved.h"

namespace leashed {

class RowHolds {
 public:
  // Of so many rows, read by readers 0 to readers − 1.
  RowHolds(std::size_t rows, std::size_t readers)
      : rows_(rows), counts_(rows, kBytes, "who holds a table's rows"), reads_(readers) {}

  static constexpr std::size_t kBytes = sizeof(std::uint32_t);  // of a row
  std::size_t rows() const { return rows_; }
  void prefetch(std::uint32_t row) const { __builtin_prefetch(&count(row), 1); }

  // One more holds the row, whosever it is. Acquire and release: of this and is_free() the second
  // sees the first. So either it is not free, or who looks for the id after this sees that it has
  // been taken out of reach.
  void hold(std::uint32_t row) { count(row).fetch_add(1, std::memory_order_acq_rel); }
  // Release: pairs with is_free(); what he did with it is over.
  void release(std::uint32_t row) { count(row).fetch_sub(1, std::memory_order_release); }
  // May be otherwise a moment later.
  bool is_held(std::uint32_t row) const { return count(row).load(std::memory_order_relaxed) > 0; }

  // Whose sections they are that copy rows which nobody holds for them.
  Epochs& reads() { return reads_; }

  // Rows have been taken out of reach; the number that they wait for, modulo 2^32: while somebody
  // reads who is older than they are, no more of them leave than there are rows.
  std::uint32_t leave() { return static_cast<std::uint32_t>(reads_.begin()); }
  // Whether a row that had left before can be used for something else: nobody holds it, and nobody
  // reads who might have found it. oldest: of who reads, now.
  bool is_free(std::uint32_t row, std::uint32_t left, std::uint64_t oldest) {
    const bool waits = oldest != Epochs::kLeft &&
                       (oldest == 0 ||  // he has joined, and announced nothing yet
                        static_cast<std::int32_t>(static_cast<std::uint32_t>(oldest) - left) < 0);
    return !waits && count(row).fetch_add(0, std::memory_order_acq_rel) == 0;
  }

 private:
  std::atomic<std::uint32_t>& count(std::uint32_t row) const {
    return reinterpret_cast<std::atomic<std::uint32_t>*>(counts_.data())[row];
  }

  const std::size_t rows_;
  const Reserved counts_;
  Epochs reads_;
};

}  // namespace leashed
