// Sparse runs by all workers at once, as HOGWILD! has them (leashed-sgd, Algorithm 4): on the
// shared vector itself, as in the original, or with a copy for each worker, as replicas.h says.
#pragma once

#include <atomic>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/sparse/lazy_shrink.h"
#include "leashed/sparse/replicas.h"
#include "leashed/sparse/runs.h"

namespace leashed {

class RacyRuns final : public SparseRuns {
 public:
  // In `buffer`; `t` counts the updates, each before its first write.
  RacyRuns(float* buffer, const Layout& layout, const Rule& rule, std::atomic<std::uint64_t>& t,
           const SparseUse& use, std::size_t workers, bool copies);

  InPlaceView open(std::size_t worker, std::uint64_t updates) override;
  ClosedRun close(std::size_t worker, std::uint64_t updates, const RunEffect& effect) override;
  void leave(std::size_t worker) override;

  // Vectors besides the buffer.
  std::size_t copies() const { return replicas_.empty() ? 0 : 2 * seen_.size(); }
  // Of the decay that the buffer has yet to get: one a worker; with copies there are none.
  std::vector<LazyShrink>& shrinks() { return shrinks_; }

 private:
  float* const buffer_;
  const std::size_t stride_;
  const Rule& rule_;
  std::atomic<std::uint64_t>& t_;
  struct alignas(kCacheLine) Seen {
    std::uint64_t t;  // what the worker's last run had seen of the others'
  };
  std::vector<Seen> seen_;
  Replicas replicas_;
  std::vector<LazyShrink> shrinks_;
};

}  // namespace leashed
