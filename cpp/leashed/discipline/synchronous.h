// SyncSGD (leashed-sgd, section I): every step all workers compute a gradient on the same theta,
// the gradients are averaged and applied as one update. The workers are one OpenMP team: each
// averages and updates its own slice between two barriers.
#pragma once

#include <atomic>
#include <barrier>
#include <vector>

#include "leashed/discipline/in_place.h"
#include "leashed/update/kernels.h"

namespace leashed {

class Synchronous final : public Guarded {
 public:
  explicit Synchronous(const DisciplineContext& context)
      : Guarded(context),
        gradients_(context.workers),
        squares_(context.workers),
        barrier_(static_cast<std::ptrdiff_t>(context.workers)) {}

  View read(std::size_t worker) override;
  Publication publish(std::size_t worker, float* gradient) override;
  void withdraw(std::size_t worker) override;
  bool lockstep() const override { return true; }
  bool in_place() const override { return false; }  // a mean of gradients is of whole vectors
  bool proceed(std::size_t worker, bool wish) override;
  std::size_t live_vectors() const override { return 1; }

 private:
  double clip_factor(std::size_t worker, const float* mean, std::size_t begin, std::size_t end);

  const UpdateKernels& kernels_ = update_kernels();
  std::vector<float*> gradients_;  // of this step, by worker
  std::vector<double> squares_;    // the mean gradient's, summed over each worker's slice
  Step step_;                      // without the clipping; set by worker 0
  // Sleeps after a while; OpenMP's own spins, and where processors are short it spins away the very
  // time that the thread it waits for would need.
  std::barrier<> barrier_;
  std::atomic<bool> halt_{false};     // a worker does not want another step
  std::atomic<bool> abandon_{false};  // a worker has no gradient for this step
};

}  // namespace leashed
