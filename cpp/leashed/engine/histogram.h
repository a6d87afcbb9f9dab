// Histograms that one thread writes and another may read meanwhile (the monitor).
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
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

// Exact counts of whole numbers. Below kBins in pages that are made when they are first needed, as
// those of staleness in the thousands may be. Values from kBins on are few different ones (a worker
// that the system put to sleep) and kept apart, for the writer only.
class CountHistogram {
 public:
  static constexpr std::size_t kPage = 1024, kPages = 16;
  static constexpr std::size_t kBins = kPage * kPages;

  void add(std::uint64_t value, std::uint64_t times = 1) {
    if (value < kBins) {
      page(value / kPage)[value % kPage].add(times);
    } else {
      beyond_[value] += times;
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
    for (const auto& [value, n] : beyond_) grow(counts, value) += n;
  }

 private:
  using Page = std::array<Counter, kPage>;

  Page& page(std::size_t i) {
    if (!owned_[i]) {
      owned_[i] = std::make_unique<Page>();
      // Release: pairs with the reader's acquire, which then sees a page of zeros.
      pages_[i].store(owned_[i].get(), std::memory_order_release);
    }
    return *owned_[i];
  }
  void merge_small(std::vector<std::uint64_t>& counts) const {
    for (std::size_t i = 0; i < kPages; ++i) {
      const Page* page = pages_[i].load(std::memory_order_acquire);
      for (std::size_t j = 0; page && j < kPage; ++j) {
        if (const std::uint64_t n = (*page)[j].get()) grow(counts, i * kPage + j) += n;
      }
    }
  }
  static std::uint64_t& grow(std::vector<std::uint64_t>& counts, std::size_t i) {
    if (counts.size() <= i) counts.resize(i + 1);
    return counts[i];
  }
  std::array<std::unique_ptr<Page>, kPages> owned_;  // the writer's
  std::array<std::atomic<const Page*>, kPages> pages_ = {};
  std::map<std::uint64_t, std::uint64_t> beyond_;  // counts by value
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
  // Where the bins begin and end, in seconds.
  static std::vector<double> edges() {
    std::vector<double> edges;
    for (int octave = 0; octave < kOctaves; ++octave) {
      for (std::size_t part = 0; part < kPerOctave; ++part) {
        edges.push_back(std::ldexp(1.0 + static_cast<double>(part) / kPerOctave, kLowest + octave));
      }
    }
    edges.push_back(std::ldexp(1.0, kLowest + kOctaves));
    return edges;
  }
  void merge_into(TimeHistogram& other) const {
    other.total += total;
    for (std::size_t i = 0; i < kBins; ++i) other.counts[i] += counts[i];
  }

  std::vector<std::uint64_t> counts;
  double total = 0;
};

}  // namespace leashed
