// The memory of a table's rows. A row never moves, so its address can be held for as long as it is
// the row of its id; memory that no row has used yet is only reserved.
//
//   version   touched   period   θ   the rule's states
//   0         4         6        8
//
// Without heads θ comes first: where θ and states fill cache lines, a row is on no others.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "leashed/table/reserved.h"

namespace leashed {

struct RowHead {
  // Twice the number of this row's updates, modulo 2^32, and 1 more once it has been evicted.
  // Relaxed: one instruction both counts an update and tells whether the row was still there, and
  // it hands nothing over.
  std::atomic<std::uint32_t> version;
  // When it was last used, in epochs modulo 2^16, and SWAP's period that its squares are of.
  std::atomic<std::uint16_t> touched, period;

  static constexpr std::uint32_t kDead = 1, kUpdate = 2;
};
static_assert(sizeof(RowHead) == 8);

class Rows {
 public:
  // Throws Error where so much cannot be reserved.
  Rows(std::size_t count, std::size_t floats, bool headed = true);

  std::size_t count() const { return count_; }
  std::size_t floats() const { return floats_; }  // of a row: θ and its states
  std::size_t bytes_per_row() const { return stride_; }
  static std::size_t bytes_of_row(std::size_t floats, bool headed = true);

  // Of rows that have heads.
  RowHead& head(std::uint32_t row) {
    return *reinterpret_cast<RowHead*>(memory_ + std::size_t{row} * stride_);
  }
  const RowHead& head(std::uint32_t row) const {
    return *reinterpret_cast<const RowHead*>(memory_ + std::size_t{row} * stride_);
  }
  // θ, and behind it the states.
  float* values(std::uint32_t row) {
    return reinterpret_cast<float*>(memory_ + std::size_t{row} * stride_ + head_);
  }
  const float* values(std::uint32_t row) const {
    return reinterpret_cast<const float*>(memory_ + std::size_t{row} * stride_ + head_);
  }

 private:
  const std::size_t count_, floats_, stride_, head_;
  const Reserved reserved_;
  std::byte* const memory_;
};

}  // namespace leashed
