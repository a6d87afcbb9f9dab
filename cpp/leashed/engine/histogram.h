// Histograms that one thread writes and another may read meanwhile (the monitor).
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace leashed {

// A counter with one writer. Relaxed throughout: it orders nothing, and after the run the reader
// has joined the writer.
class Counter {
 public:
  void add(std::uint64_t n) { value_.store(get() + n, std::memory_order_relaxed); }
  std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// Exact counts of small whole numbers. Values from kBins on are rare (a worker that the system put
// to sleep) and kept one by one, for the writer only.
class CountHistogram {
 public:
  static constexpr std::size_t kBins = 1024;

  CountHistogram() : bins_(kBins) {}
  void add(std::uint64_t value, std::uint64_t times = 1) {
    if (value < kBins) {
      bins_[value].add(times);
    } else {
      beyond_.insert(beyond_.end(), times, value);
      beyond_count_.add(times);
    }
  }
  // Adds the counts to `counts` (longer where it must be). For the monitor, while the run lasts:
  // bin kBins counts everything from it on.
  void merge_bins_into(std::vector<std::uint64_t>& counts) const {
    merge_small(counts);
    if (const std::uint64_t n = beyond_count_.get()) grow(counts, kBins) += n;
  }
  // After the run: exact.
  void merge_into(std::vector<std::uint64_t>& counts) const {
    merge_small(counts);
    for (const std::uint64_t value : beyond_) ++grow(counts, value);
  }

 private:
  void merge_small(std::vector<std::uint64_t>& counts) const {
    for (std::size_t i = 0; i < kBins; ++i) {
      if (const std::uint64_t n = bins_[i].get()) grow(counts, i) += n;
    }
  }
  static std::uint64_t& grow(std::vector<std::uint64_t>& counts, std::size_t i) {
    if (counts.size() <= i) counts.resize(i + 1);
    return counts[i];
  }
  std::vector<Counter> bins_;
  std::vector<std::uint64_t> beyond_;
  Counter beyond_count_;
};

// Durations in bins of equal width within each power of two: 16 per octave, so a bin is at most
// 6% wide; from 2^-30 s (1 ns) to 2^10 s. The total is exact. Read after the run only.
class TimeHistogram {
 public:
  static constexpr int kLowest = -30;
  static constexpr int kOctaves = 40;
  static constexpr std::size_t kPerOctave = 16;
  static constexpr std::size_t kBins = kOctaves * kPerOctave;

  TimeHistogram() : counts(kBins) {}
  void add(double seconds, std::uint64_t times = 1) {
    total += seconds * static_cast<double>(times);
    // The exponent and the top four bits of the mantissa number the bins.
    const auto bits = static_cast<std::int64_t>(std::bit_cast<std::uint64_t>(seconds) >> 48);
    const std::int64_t bin = bits - std::int64_t{1023 + kLowest} * 16;
    counts[bin < 0                      ? 0
           : bin >= std::int64_t{kBins} ? kBins - 1
                                        : static_cast<std::size_t>(bin)] += times;
  }
  void merge_into(TimeHistogram& other) const {
    other.total += total;
    for (std::size_t i = 0; i < kBins; ++i) other.counts[i] += counts[i];
  }

  std::vector<std::uint64_t> counts;
  double total = 0;
};

}  // namespace leashed
