// Running statistics of staleness, for the policies that adapt to it. Any thread adds and reads at
// any time. Relaxed throughout: these are counts, and they order nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "leashed/base/aligned.h"

namespace leashed {

class StalenessStatistics {
 public:
  void add(std::uint64_t tau) {
    count_.fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(tau, std::memory_order_relaxed);
    squares_.fetch_add(tau * tau, std::memory_order_relaxed);
    bins_[std::min<std::uint64_t>(tau, kBins - 1)].fetch_add(1, std::memory_order_relaxed);
  }

  std::uint64_t count() const { return count_.load(std::memory_order_relaxed); }
  // 0 before the first.
  double mean() const { return moment(sum_); }
  double deviation() const {
    const double mean = this->mean();
    return std::sqrt(std::max(moment(squares_) - mean * mean, 0.0));
  }
  // The share of those below tau, by the whole number at or above it; staleness from the last bin
  // on counts as that bin. 0 before the first.
  double below(double tau) const {
    const auto end = static_cast<std::size_t>(std::ceil(std::min(tau, double{kBins - 1})));
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < end; ++i) below += bins_[i].load(std::memory_order_relaxed);
    return std::min(static_cast<double>(below) / std::max<double>(1, count()), 1.0);
  }
  // The smallest staleness that at least this share does not exceed; 0 before the first.
  std::size_t quantile(double share) const {
    const double wanted = share * static_cast<double>(count());
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < kBins; ++i) {
      seen += bins_[i].load(std::memory_order_relaxed);
      if (static_cast<double>(seen) >= wanted) return i;
    }
    return kBins - 1;
  }

  // All of it in numbers, and from them.
  std::vector<std::uint64_t> save() const {
    std::vector<std::uint64_t> numbers;
    for (const auto* total : {&count_, &sum_, &squares_}) numbers.push_back(total->load(kRelaxed));
    for (const auto& bin : bins_) numbers.push_back(bin.load(kRelaxed));
    return numbers;
  }
  void restore(const std::vector<std::uint64_t>& numbers) {
    auto next = numbers.begin();
    const auto take = [&] { return next == numbers.end() ? 0 : *next++; };
    for (auto* total : {&count_, &sum_, &squares_}) total->store(take(), kRelaxed);
    for (auto& bin : bins_) bin.store(take(), kRelaxed);
  }

 private:
  static constexpr std::size_t kBins = 1024;
  static constexpr auto kRelaxed = std::memory_order_relaxed;

  double moment(const std::atomic<std::uint64_t>& sum) const {
    return static_cast<double>(sum.load(std::memory_order_relaxed)) / std::max<double>(1, count());
  }

  alignas(kCacheLine) std::atomic<std::uint64_t> count_{0};
  std::atomic<std::uint64_t> sum_{0}, squares_{0};
  alignas(kCacheLine) std::atomic<std::uint64_t> bins_[kBins] = {};
};

}  // namespace leashed
