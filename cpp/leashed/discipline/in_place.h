// What the disciplines share that keep one vector and change it where it lies.
#pragma once

#include <algorithm>
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
