// Running statistics of staleness, for the policies that adapt to it. Any thread adds and reads at
// any time. Relaxed but where save needs more: these are counts, and they order nothing else.
//
// Below 1,024 every staleness has a bin of its own; from there on each octave has 512, so that a
// bin is at most 0.2% wide, to 2^32. Mean and deviation are exact while the sum of squares is below
// 2^64: 1.8·10^11 updates at a staleness of 10,000.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/base/relaxed.h"

namespace leashed {

class StalenessStatistics {
 public:
  // Release: who sees (save, with acquire) one of these numbers changed sees those before it
  // changed too.
  void add(std::uint64_t tau) {
    const std::size_t bin = bin_of(tau);
    std::size_t end = used();
    while (end <= bin && !used_.compare_exchange_weak(end, bin + 1, kRelaxed)) {
    }
    count_.fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(tau, std::memory_order_release);
    squares_.fetch_add(tau * tau, std::memory_order_release);
    bins_[bin].fetch_add(1, std::memory_order_release);
  }

  std::uint64_t count() const { return count_.load(std::memory_order_relaxed); }
  // 0 before the first.
  double mean() const { return moment(sum_); }
  double deviation() const {
    const double mean = this->mean();
    return std::sqrt(std::max(moment(squares_) - mean * mean, 0.0));
  }
  // The share of those below tau, by the whole number at or above it; what is in one bin with it
  // counts as spread evenly. 0 before the first.
  double below(double tau) const {
    constexpr double kAll = std::uint64_t{1} << kOctaves;
    const auto whole = static_cast<std::uint64_t>(std::ceil(std::clamp(tau, 0.0, kAll)));
    const std::size_t bin = bin_of(whole), end = std::min(bin, used());
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < end; ++i) below += bins_[i].load(kRelaxed);
    const double part = static_cast<double>(whole - begin_of(bin)) / width_of(bin);
    const double sum =
        static_cast<double>(below) + part * static_cast<double>(bins_[bin].load(kRelaxed));
    return std::min(sum / std::max<double>(1, count()), 1.0);
  }
  // The smallest staleness that at least this share does not exceed: the middle of its bin. 0
  // before the first.
  double quantile(double share) const {
    const double wanted = share * static_cast<double>(count());
    std::uint64_t seen = 0;
    std::size_t last = 0;  // not empty: what is counted may not be in its bin yet
    for (std::size_t i = 0; i < used() && static_cast<double>(seen) < wanted; ++i) {
      const std::uint64_t n = bins_[i].load(kRelaxed);
      if (n) last = i;
      seen += n;
    }
    return middle_of(last);
  }
  // f(staleness, updates) for all that was seen, by bins.
  template <class F>
  void for_each(F&& f) const {
    for (std::size_t i = 0; i < used(); ++i) {
      if (const std::uint64_t n = bins_[i].load(kRelaxed)) f(middle_of(i), static_cast<double>(n));
    }
  }

  // All of it in numbers, and from them. In the other order than they are added to, so that numbers
  // whose bins add up to their count are of the same updates: all that is in a bin was seen in the
  // sums, and all that is in a sum was seen in the count.
  void save(std::vector<std::uint64_t>& numbers) const {
    numbers.resize(3 + used());
    for (std::size_t i = 0; i + 3 < numbers.size(); ++i) {
      numbers[3 + i] = bins_[i].load(std::memory_order_acquire);
    }
    numbers[2] = squares_.load(std::memory_order_acquire);
    numbers[1] = sum_.load(std::memory_order_acquire);
    numbers[0] = count_.load(std::memory_order_relaxed);
  }
  static std::uint64_t binned(const std::vector<std::uint64_t>& numbers) {
    return std::accumulate(numbers.begin() + 3, numbers.end(), std::uint64_t{0});
  }
  void restore(const std::vector<std::uint64_t>& numbers) {
    auto next = numbers.begin();
    const auto take = [&] { return next == numbers.end() ? 0 : *next++; };
    for (auto* total : {&count_, &sum_, &squares_}) total->store(take(), kRelaxed);
    for (auto& bin : bins_) bin.store(take(), kRelaxed);
    used_.store(std::clamp<std::size_t>(numbers.size(), 3, 3 + kBins) - 3, kRelaxed);
  }

 private:
  // A bin is the octave and the 9 bits of τ after its first one; below 1,024 that is τ.
  static constexpr int kOctaves = 32, kBits = 9;
  static constexpr std::size_t kParts = std::size_t{1} << kBits;
  static constexpr std::size_t bin_of(std::uint64_t tau) {
    tau = std::min(tau, (std::uint64_t{1} << kOctaves) - 1);
    const int octave = std::max(static_cast<int>(std::bit_width(tau)) - kBits - 1, 0);
    return octave * kParts + (tau >> octave);
  }
  static constexpr int octave_of(std::size_t bin) {
    return std::max(static_cast<int>(bin / kParts) - 1, 0);
  }
  static constexpr std::uint64_t begin_of(std::size_t bin) {
    return (bin - octave_of(bin) * kParts) << octave_of(bin);
  }
  static constexpr double width_of(std::size_t bin) { return std::uint64_t{1} << octave_of(bin); }
  static constexpr double middle_of(std::size_t bin) {
    return static_cast<double>(begin_of(bin)) + (width_of(bin) - 1) / 2;
  }
  static constexpr std::size_t kBins = (kOctaves - kBits + 1) * kParts;

  // Bins from here on are empty.
  std::size_t used() const { return used_.load(kRelaxed); }
  double moment(const std::atomic<std::uint64_t>& sum) const {
    return static_cast<double>(sum.load(std::memory_order_relaxed)) / std::max<double>(1, count());
  }

  alignas(kCacheLine) std::atomic<std::uint64_t> count_{0};
  std::atomic<std::uint64_t> sum_{0}, squares_{0};
  std::atomic<std::size_t> used_{0};
  alignas(kCacheLine) std::atomic<std::uint64_t> bins_[kBins] = {};
};

}  // namespace leashed
