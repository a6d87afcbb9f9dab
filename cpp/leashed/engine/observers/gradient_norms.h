// The norms of gradients: their mean, and the largest.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/base/choice.h"
#include "leashed/base/relaxed.h"
#include "leashed/engine/step_observer.h"
#include "leashed/update/kernels.h"

namespace leashed {

class GradientNorms final : public StepObserver {
 public:
  GradientNorms(const Choice&, std::size_t workers) : workers_(workers) {}

  bool needs_gradients() const override { return true; }
  void computed(const WorkerStep& step) override {
    constexpr float kNoClip = std::numeric_limits<float>::infinity();
    const double norm =
        std::sqrt(kernels_.sum_of_squares(step.gradient.data(), kNoClip, 0, step.gradient.size()));
    Worker& own = workers_[step.worker];
    own.sum.store(own.sum.load(kRelaxed) + norm, kRelaxed);
    own.largest.store(std::max(own.largest.load(kRelaxed), norm), kRelaxed);
    own.count.store(own.count.load(kRelaxed) + 1, kRelaxed);
  }
  Found found() const override {
    double sum = 0, largest = 0, count = 0;
    for (const Worker& one : workers_) {
      sum += one.sum.load(kRelaxed);
      largest = std::max(largest, one.largest.load(kRelaxed));
      count += static_cast<double>(one.count.load(kRelaxed));
    }
    return {{"gradient_norm", sum / count}, {"largest_gradient_norm", largest}};
  }

 private:
  // Relaxed: each has one writer and hands nothing over; what the monitor reads meanwhile may be of
  // different gradients.
  struct alignas(kCacheLine) Worker {
    std::atomic<double> sum{0}, largest{0};
    std::atomic<std::uint64_t> count{0};
  };
  std::vector<Worker> workers_;
  const UpdateKernels& kernels_ = update_kernels();
};

}  // namespace leashed
