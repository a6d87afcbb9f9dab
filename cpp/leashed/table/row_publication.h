// What became of the gradients of a batch's distinct rows: each is one of these. A row's staleness
// is the number of others' updates of that row between pull and push.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace leashed {

struct RowPublication {
  // Staleness by its binary digits: 0; 1; 2 and 3; 4 to 7; … It is a difference of versions.
  static constexpr std::size_t kOctaves = 33;
  using Octaves = std::array<std::uint64_t, kOctaves>;

  std::uint64_t applied = 0;
  std::uint64_t folded = 0;      // in lockstep: into another worker's gradient of that row
  std::uint64_t late = 0;        // the row had been evicted
  std::uint64_t excluded = 0;    // by the staleness policy
  std::uint64_t unadmitted = 0;  // the id has not been seen often enough
  std::uint64_t deferred = 0;    // the id had no row, and somebody else changed its shard then
  std::uint64_t refused = 0;     // the id had no row, and there was no room
  std::uint64_t staleness = 0;   // of those applied, the sum
  std::uint64_t stalest = 0;     // of those applied, the largest
  Octaves octaves{};             // of those applied, how many

  // What is summed up.
  static const std::array<std::uint64_t RowPublication::*, 8> kSums;
  static constexpr std::size_t kRefused = 6;  // among them

  void add(const RowPublication& other);
  void apply(std::uint32_t tau);
};

inline constexpr std::array<std::uint64_t RowPublication::*, 8> RowPublication::kSums = {
    &RowPublication::applied,  &RowPublication::folded,     &RowPublication::late,
    &RowPublication::excluded, &RowPublication::unadmitted, &RowPublication::deferred,
    &RowPublication::refused,  &RowPublication::staleness};

inline void RowPublication::add(const RowPublication& other) {
  for (const auto sum : kSums) this->*sum += other.*sum;
  if (other.stalest > stalest) stalest = other.stalest;
  for (std::size_t i = 0; i < kOctaves; ++i) octaves[i] += other.octaves[i];
}

inline void RowPublication::apply(std::uint32_t tau) {
  ++applied;
  staleness += tau;
  if (tau > stalest) stalest = tau;
  ++octaves[std::bit_width(tau)];
}

}  // namespace leashed
