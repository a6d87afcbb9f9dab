// Copies of theta that somebody holds; their memory serves the next.
#pragma once

#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/discipline/open.h"

namespace leashed {

class HeldCopies {
 public:
  explicit HeldCopies(std::size_t dimension) : dimension_(dimension) {}

  class Copy final : public Held {
   public:
    explicit Copy(HeldCopies& copies) : copies_(copies), theta_(copies.take()) {}
    ~Copy() override { copies_.give_back(std::move(theta_)); }
    float* theta() { return theta_.data(); }

   private:
    HeldCopies& copies_;
    AlignedArray<float> theta_;
  };

 private:
  AlignedArray<float> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!spare_.empty()) {
        AlignedArray<float> theta = std::move(spare_.back());
        spare_.pop_back();
        return theta;
      }
    }
    return AlignedArray<float>(dimension_);
  }
  void give_back(AlignedArray<float> theta) noexcept {
    const std::lock_guard lock(mutex_);
    try {
      spare_.push_back(std::move(theta));
    } catch (const std::bad_alloc&) {
      // Then it serves nobody.
    }
  }

  const std::size_t dimension_;
  std::mutex mutex_;  // for a few instructions; no one waits for a vector's length under it
  std::vector<AlignedArray<float>> spare_;
};

}  // namespace leashed
