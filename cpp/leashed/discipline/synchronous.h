// SyncSGD (leashed-sgd, section I): every step all workers compute a gradient on the same theta,
// the gradients are averaged and applied as one update: each worker averages and updates its own
// slice between two barriers. A worker that ends, for whatever reason, leaves the barrier, and the
// others end with it: the step that it has no gradient for is given up.
#pragma once

#include <algorithm>
#include <atomic>
#include <span>
#include <vector>

#include "leashed/base/barrier.h"
#include "leashed/discipline/guarded.h"
#include "leashed/update/kernels.h"

namespace leashed {

// The parameters that a worker averages and updates: in whole cache lines, so that no two write one
// line.
struct Slice {
  std::size_t begin, end;
};
inline Slice slice_of(std::size_t dimension, std::size_t worker, std::size_t workers) {
  constexpr std::size_t kLine = kCacheLine / sizeof(float);
  const std::size_t lines = (dimension + kLine - 1) / kLine;
  return {std::min(dimension, lines * worker / workers * kLine),
          std::min(dimension, lines * (worker + 1) / workers * kLine)};
}

// What all workers make of a step, by one thread: their gradients' mean, which becomes the first
// one, applied to the buffer. `step` is without the clipping.
void apply_mean(const Updater& updater, std::span<float* const> gradients, float* buffer,
                Step step);

class Synchronous final : public Guarded {
 public:
  explicit Synchronous(const DisciplineContext& context)
      : Guarded(context),
        gradients_(context.workers),
        squares_(context.workers),
        barrier_(context.workers) {}

  View read(std::size_t worker) override;
  Publication publish(std::size_t worker, float* gradient) override;
  // Of all workers at once, one after the other's number, while no thread is in a call of publish.
  Publication publish(std::span<float* const> gradients);
  void withdraw(std::size_t worker) override;
  bool lockstep() const override { return true; }
  SparseRuns* sparse_runs() override { return nullptr; }  // a mean of gradients is of whole vectors
  bool proceed(std::size_t worker, bool wish) override;
  void leave(std::size_t worker) override;
  std::size_t live_vectors() const override { return 1; }

 private:
  double clip_factor(std::size_t worker, const float* mean, std::size_t begin, std::size_t end);

  const UpdateKernels& kernels_ = update_kernels();
  std::vector<float*> gradients_;  // of this step, by worker
  std::vector<double> squares_;    // the mean gradient's, summed over each worker's slice
  Step step_;                      // without the clipping; set by the last to have a gradient
  Barrier barrier_;
  std::atomic<bool> halt_{false};     // a worker does not want another step
  std::atomic<bool> abandon_{false};  // a worker has no gradient for this step
};

}  // namespace leashed
