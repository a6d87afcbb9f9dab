// A worker's own copy of theta, the version it has, and how the worker stores updates.
#pragma once

#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/update/stores.h"

namespace leashed {

struct alignas(kCacheLine) LocalCopy {
  AlignedArray<float> theta;
  std::uint64_t t = 0;
  StoreChoice stores;
};

// For all workers of a vector of `length` floats, of which they copy the first `copied`.
inline std::vector<LocalCopy> local_copies(std::size_t workers, std::size_t length,
                                           std::size_t copied) {
  std::vector<LocalCopy> copies;
  copies.reserve(workers);
  for (std::size_t worker = 0; worker < workers; ++worker) {
    copies.push_back({AlignedArray<float>(copied), 0, StoreChoice(workers, length)});
  }
  return copies;
}

}  // namespace leashed
