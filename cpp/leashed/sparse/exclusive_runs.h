// Sparse runs on the parameters themselves, one at a time: the lock is held from open to close.
#pragma once

#include <mutex>

#include "leashed/base/clock.h"
#include "leashed/sparse/lazy_shrink.h"
#include "leashed/sparse/runs.h"
#include "leashed/update/layout.h"

namespace leashed {

class ExclusiveRuns final : public SparseRuns {
 public:
  // In `buffer`, whose version is `t`; both change under the lock.
  ExclusiveRuns(float* buffer, const Layout& layout, const Rule& rule, std::mutex& mutex,
                std::uint64_t& t, const SparseUse& use)
      : buffer_(buffer),
        stride_(layout.stride()),
        rule_(rule),
        mutex_(mutex),
        t_(t),
        shrink_(use.shape.intercepts, use.active) {}

  InPlaceView open(std::size_t, std::uint64_t) override {
    const double start = now();
    mutex_.lock();
    return {buffer_, stride_, t_, &rule_, now() - start, {.log_shrink = shrink_.total()}};
  }
  ClosedRun close(std::size_t, std::uint64_t updates, const RunEffect& effect) override {
    shrink_.advance(effect.log_shrink, effect.whole, buffer_);
    t_ += updates;
    mutex_.unlock();
    return {};
  }

  // Under the lock.
  LazyShrink& shrink() { return shrink_; }

 private:
  float* const buffer_;
  const std::size_t stride_;
  const Rule& rule_;
  std::mutex& mutex_;
  std::uint64_t& t_;
  LazyShrink shrink_;
};

}  // namespace leashed
