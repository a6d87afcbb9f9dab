// Ids that have been seen often enough to be worth a row: a counting filter. Each id has two
// counters among 8 for every row, which others may share, and has been seen as often as the lesser
// one says: at least as often as it was. As ids go on coming, word after word of 8 counters is
// halved, the whole filter once for every 10 ids that come for a row: what is seldom seen is
// forgotten.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "leashed/base/relaxed.h"

namespace leashed {

class Admission {
 public:
  static constexpr std::uint32_t kMost = 255;
  static std::size_t bytes(std::size_t rows) { return std::bit_ceil(8 * rows); }

  Admission(std::size_t rows, std::uint32_t wanted)
      : wanted_(wanted),
        mask_(bytes(rows) - 1),
        counters_(std::make_unique<std::atomic<std::uint8_t>[]>(mask_ + 1)) {}

  // By one thread alone.
  void clear() {
    for (std::uint64_t i = 0; i <= mask_; ++i) counters_[i].store(0, kRelaxed);
    sightings_.store(0, kRelaxed);
  }

  // Counts the id; whether that makes it enough. By any thread: of two that count the same id at
  // once one may go uncounted. Relaxed: counts, which order nothing.
  bool sighted(std::uint64_t id) {
    forget();
    const std::uint64_t hash = id * 0x9E3779B97F4A7C15;
    auto& first = counters_[(hash >> 40 ^ hash << 24) & mask_];
    auto& second = counters_[(hash ^ hash >> 29) * 0xBF58476D1CE4E5B9 >> 20 & mask_];
    const std::uint8_t a = first.load(kRelaxed), b = second.load(kRelaxed);
    const std::uint8_t seen = std::min(a, b);
    if (seen == kMost) return true;
    if (a == seen) first.store(seen + 1, kRelaxed);
    if (b == seen) second.store(seen + 1, kRelaxed);
    return seen + 1u >= wanted_;
  }

 private:
  void forget() {
    const std::uint64_t n = sightings_.fetch_add(1, kRelaxed);
    if (n % 10 != 0) return;
    for (std::uint64_t i = n / 10 * 8; i < n / 10 * 8 + 8; ++i) {
      auto& counter = counters_[i & mask_];
      counter.store(counter.load(kRelaxed) / 2, kRelaxed);
    }
  }

  const std::uint32_t wanted_;
  const std::uint64_t mask_;
  const std::unique_ptr<std::atomic<std::uint8_t>[]> counters_;
  std::atomic<std::uint64_t> sightings_{0};
};

}  // namespace leashed
