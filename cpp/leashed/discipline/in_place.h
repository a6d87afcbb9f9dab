// What the disciplines share that keep one vector and change it where it lies.
#pragma once

#include <algorithm>
#include <mutex>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/base/clock.h"
#include "leashed/discipline/discipline.h"
#include "leashed/discipline/updater.h"

namespace leashed {

// Copies of theta that somebody holds; their memory serves the next.
class Copies {
 public:
  explicit Copies(std::size_t dimension) : dimension_(dimension) {}

  class Copy final : public Held {
   public:
    explicit Copy(Copies& copies) : copies_(copies), theta_(copies.take()) {}
    ~Copy() override { copies_.give_back(std::move(theta_)); }
    float* theta() { return theta_.data(); }

   private:
    Copies& copies_;
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
  void give_back(AlignedArray<float> theta) {
    const std::lock_guard lock(mutex_);
    spare_.push_back(std::move(theta));
  }

  const std::size_t dimension_;
  std::mutex mutex_;  // for a few instructions; no one waits for a vector's length under it
  std::vector<AlignedArray<float>> spare_;
};

class InPlace : public Discipline {
 public:
  float* memory() override { return buffer_.data(); }

 protected:
  explicit InPlace(const DisciplineContext& context)
      : updater_(context),
        dimension_(context.dimension),
        copies_(context.dimension),
        buffer_(updater_.layout().length()),
        sparse_(context.sparse),
        snapshot_(updater_.layout().length()) {
    updater_.initialise(buffer_.data(), context);
  }

  // Theta lies at the start of the buffer.
  const float* theta() const { return buffer_.data(); }

  const Updater updater_;
  std::unique_ptr<Held> hold_live(std::uint64_t t) const {
    auto held = std::make_unique<Held>();
    held->view = {theta(), t};
    return held;
  }

  const std::size_t dimension_;
  Copies copies_;
  AlignedArray<float> buffer_;
  const SparseUse sparse_;

  // Where decay was behind, it goes on from there.
  void go_on(LazyShrink& shrink, const Behind& behind) {
    if (!behind.shrink || sparse_.active == 0) return;
    std::copy_n(behind.theta, dimension_, buffer_.data());
    shrink.restore(*behind.shrink);
  }
  // Of the monitor's copy, which is at version t and whose decay is at `progress_`.
  State state(std::uint64_t t, const LazyShrink& shrink) {
    if (!progress_.begun()) return {snapshot_.data(), t};
    behind_.assign(snapshot_.data(), snapshot_.data() + dimension_);
    shrink.complete(snapshot_.data(), progress_);
    return {snapshot_.data(), t, {behind_.data(), &progress_}};
  }

  AlignedArray<float> snapshot_;  // the monitor's copy
  ShrinkProgress progress_;
  std::vector<float> behind_;  // the copy as it was
};

// With a lock for those who change the buffer and for the monitor.
class Guarded : public InPlace {
 public:
  void with_snapshot(const std::function<void(const float*, std::uint64_t)>& f) override {
    const std::uint64_t t = copy(dimension_);
    shrink_.complete(snapshot_.data(), progress_);
    f(snapshot_.data(), t);
  }
  void with_state(const std::function<void(const State&)>& f) override {
    const std::uint64_t t = copy(updater_.layout().length());
    f(state(t, shrink_));
  }
  std::uint64_t updates() override {
    const std::lock_guard lock(mutex_);
    return t_;
  }

  // The lock is held from open to close.
  bool in_place() const override { return sparse_.active > 0; }
  InPlaceView open(std::size_t, std::uint64_t) override {
    const double start = now();
    mutex_.lock();
    return {buffer_.data(), updater_.layout().stride(),     t_, &updater_.rule(),
            now() - start,  {.log_shrink = shrink_.total()}};
  }
  Publication close(std::size_t, std::uint64_t updates, const RunEffect& effect) override {
    shrink_.advance(effect.log_shrink, effect.whole, buffer_.data());
    t_ += updates;
    mutex_.unlock();
    return {.published = true};
  }

 protected:
  explicit Guarded(const DisciplineContext& context)
      : InPlace(context), t_(context.t), shrink_(context.sparse.outputs, context.sparse.active) {
    go_on(shrink_, context.behind);
  }

  std::mutex mutex_;
  std::uint64_t t_;  // changes under the lock

 private:
  // The monitor's copy is taken; its version.
  std::uint64_t copy(std::size_t length) {
    const std::lock_guard lock(mutex_);
    std::copy_n(buffer_.data(), length, snapshot_.data());
    progress_ = shrink_.progress();
    return t_;
  }

  LazyShrink shrink_;  // under the lock
};

// A worker's own copy of theta, the version it has, and how the worker stores updates.
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
