// Weight decay under updates that touch few parameters each. Multiplying all of them every time
// would take longer than the update, so each is multiplied now and then by the product of what it
// missed: a part of the vector after each run of updates, in turn, so that at most kPart parameters
// are gone through for a run. Copies of the vector get what it still misses (complete).
//
// A run of updates that goes on from a checkpoint must find each part as far behind as it was, to
// come to the same bits: multiplying twice is not multiplying by the product.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <vector>

#include "leashed/sparse/runs.h"
#include "leashed/update/kernels.h"

namespace leashed {

class LazyShrink {
 public:
  // Of the parameters [begin, end).
  LazyShrink(std::size_t begin, std::size_t end) : begin_(begin), end_(end) {
    progress_.done.resize(parts(begin, end));
  }

  static std::size_t parts(std::size_t begin, std::size_t end) {
    return end > begin ? (end - begin + kPart - 1) / kPart : 0;
  }

  // Whether decay by so much at most an update may wait for the end of a run of updates. What their
  // gradients add is multiplied with the rest then, so that they lose some of it: on average less
  // than a quarter. From 1 on there would not even be a logarithm.
  static bool suits(double decay, std::size_t updates) {
    return decay * static_cast<double>(updates + 1) / 2 < 0.25;
  }

  double total() const { return progress_.total; }

  // After updates, which bring the total to this; `catch_up`: it is some part's turn. Other threads
  // may use theta meanwhile.
  void advance(double total, bool catch_up, float* theta) {
    if (progress_.done.empty()) return;
    store(progress_.total, total);
    if (!catch_up || !progress_.begun()) return;
    shrink(progress_.next, total, progress_.done[progress_.next], theta);
    store(progress_.done[progress_.next], total);
    store(progress_.next, (progress_.next + 1) % progress_.done.size());
  }

  // Gives theta all that it misses; only the thread that calls advance, or under its lock.
  void catch_up(float* theta) {
    complete(theta, progress_);
    for (double& done : progress_.done) store(done, progress_.total);
  }

  // For any thread.
  ShrinkProgress progress() const {
    ShrinkProgress result{load(progress_.total), {}, load(progress_.next)};
    for (const double& done : progress_.done) result.done.push_back(load(done));
    return result;
  }
  void restore(const ShrinkProgress& from) { progress_ = from; }

  // Gives a copy of theta at that progress what it still misses.
  void complete(float* copy, const ShrinkProgress& at) const {
    for (std::size_t part = 0; part < at.done.size(); ++part) {
      shrink(part, at.total, at.done[part], copy);
    }
  }

 private:
  static constexpr std::size_t kPart = 4096;

  // Only the thread that calls advance writes. Relaxed: under Hogwild the monitor's copy of theta
  // is as old in one place and as new in another as this is.
  template <class T>
  static T load(const T& value) {
    return std::atomic_ref<T>(const_cast<T&>(value)).load(std::memory_order_relaxed);
  }
  template <class T>
  static void store(T& value, T to) {
    std::atomic_ref<T>(value).store(to, std::memory_order_relaxed);
  }

  void shrink(std::size_t part, double total, double done, float* theta) const {
    if (done == total) return;
    const std::size_t begin = begin_ + part * kPart;
    const auto factor = static_cast<float>(std::exp(total - done));
    update_kernels().scale_racy(theta + begin, factor, std::min(kPart, end_ - begin));
  }

  std::size_t begin_, end_;
  ShrinkProgress progress_;
};

}  // namespace leashed
