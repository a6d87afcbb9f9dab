// How often the limit on users is halved, of rows that several threads sample at once: as often as
// it must be for all of their rows together to fit, whoever of them has which.
//
// After h halvings those users are kept whose hash has h leading zeros at least. Rows are counted
// by how many halvings they outlive, so that the counts tell for each h how many would be kept. A
// row that is yet to be counted can but raise the limit later, never have it too high: who asks it
// lets nobody go whom all rows together would leave in. Two threads that count at once may each
// miss the other's rows; the limit is then one too low until somebody counts again, and what is too
// much is let go of where the samples are merged.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "leashed/base/aligned.h"

namespace leashed {

class UserLimit {
 public:
  static constexpr unsigned kMost = 65;  // halvings: then nobody is kept
  // Of rows, by how many halvings their users outlive.
  using Counts = std::array<std::uint64_t, kMost>;

  // For so many rows.
  explicit UserLimit(std::size_t most) : most_(most) {}

  static unsigned outlives(std::uint64_t hash) {
    return static_cast<unsigned>(std::countl_zero(hash));
  }
  static bool keeps(unsigned halvings, std::uint64_t hash) { return outlives(hash) >= halvings; }

  // By any thread. Relaxed: who sees less than others have counted lets go of users later.
  unsigned halvings() const { return halvings_.load(std::memory_order_relaxed); }
  // So many rows more, all that outlive the limit that the caller knew.
  void count(const Counts& rows);

 private:
  const std::size_t most_;
  // Relaxed: counts, which order nothing; nor do the halvings that are found from them.
  std::array<std::atomic<std::uint64_t>, kMost> rows_{};
  // Relaxed, and only ever raised; apart from what is counted, since it is looked at for each
  // batch.
  alignas(kCacheLine) std::atomic<unsigned> halvings_{0};
};

}  // namespace leashed
