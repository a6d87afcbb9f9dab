// The right to be one of so many: readers of a pool that is sized for so many, threads of an
// engine.
#pragma once

#include <atomic>
#include <cstddef>

namespace leashed {

class Permits {
 public:
  explicit Permits(std::size_t n) : left_(static_cast<std::ptrdiff_t>(n)) {}

  bool take() {
    std::ptrdiff_t left = left_.load(std::memory_order_relaxed);
    // Acquire: pairs with the release in give_back; the slots that were freed are seen as free.
    while (left > 0 && !left_.compare_exchange_weak(left, left - 1, std::memory_order_acquire,
                                                    std::memory_order_relaxed)) {
    }
    return left > 0;
  }
  void give_back() { left_.fetch_add(1, std::memory_order_release); }

 private:
  std::atomic<std::ptrdiff_t> left_;
};

}  // namespace leashed
