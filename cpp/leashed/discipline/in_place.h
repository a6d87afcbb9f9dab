// What the disciplines share that keep one vector and change it where it lies.
#pragma once

#include <algorithm>
#include <mutex>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/discipline/discipline.h"
#include "leashed/update/rule.h"

namespace leashed {

class InPlace : public Discipline {
 protected:
  InPlace(const float* initial, std::size_t dimension, const Rule& rule)
      : dimension_(dimension), rule_(rule), theta_(dimension), snapshot_(dimension) {
    std::copy(initial, initial + dimension, theta_.data());
  }

  const std::size_t dimension_;
  const Rule& rule_;
  AlignedArray<float> theta_;
  AlignedArray<float> snapshot_;  // the monitor's copy
};

// With a lock for those who change theta and for the monitor.
class Guarded : public InPlace {
 public:
  void with_snapshot(const std::function<void(const float*, std::uint64_t)>& f) override {
    std::uint64_t t;
    {
      const std::lock_guard lock(mutex_);
      std::copy_n(theta_.data(), dimension_, snapshot_.data());
      t = t_;
    }
    f(snapshot_.data(), t);
  }

 protected:
  using InPlace::InPlace;

  std::mutex mutex_;
  std::uint64_t t_ = 0;  // changes under the lock
};

// A worker's own copy of theta and the version it has.
struct alignas(kCacheLine) LocalCopy {
  AlignedArray<float> theta;
  std::uint64_t t = 0;
};

inline std::vector<LocalCopy> local_copies(std::size_t workers, std::size_t dimension) {
  std::vector<LocalCopy> copies(workers);
  for (LocalCopy& copy : copies) copy.theta = AlignedArray<float>(dimension);
  return copies;
}

}  // namespace leashed
