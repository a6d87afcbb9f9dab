// HOGWILD! (leashed-sgd, Algorithm 4): no synchronisation at all; threads copy theta and update it
// in place while others do the same, through the racy kernels of update/kernels.h. The variant
// without the local copy computes the gradient straight on the shared vector.
#pragma once

#include <atomic>
#include <vector>

#include "leashed/discipline/in_place.h"
#include "leashed/update/kernels.h"

namespace leashed {

class Hogwild final : public InPlace {
 public:
  Hogwild(const float* initial, std::size_t dimension, std::size_t workers, const Rule& rule,
          bool copy);

  View read(std::size_t worker) override;
  Publication publish(std::size_t worker, float* gradient) override;
  void withdraw(std::size_t) override {}
  void with_snapshot(const std::function<void(const float*, std::uint64_t)>& f) override;
  std::size_t live_vectors() const override { return 1 + (copy_ ? workers_.size() : 0); }

 private:
  const bool copy_;
  const UpdateKernels& kernels_ = update_kernels();
  std::vector<LocalCopy> workers_;
  // One shared counter, incremented once an update before its first write (READINGS).
  alignas(kCacheLine) std::atomic<std::uint64_t> t_{0};
};

}  // namespace leashed
