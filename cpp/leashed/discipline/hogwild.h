// HOGWILD! (leashed-sgd, Algorithm 4): no synchronisation at all; threads copy theta and update it
// in place while others do the same, through the racy kernels of update/kernels.h. The variant
// without the local copy computes the gradient straight on the shared vector. Updates in place are
// made on the shared vector too, as in the original Hogwild, or, with copies, as replicas.h says.
#pragma once

#include <atomic>
#include <vector>

#include "leashed/discipline/in_place.h"
#include "leashed/discipline/replicas.h"
#include "leashed/update/kernels.h"

namespace leashed {

class Hogwild final : public InPlace {
 public:
  Hogwild(const DisciplineContext& context, bool copy);

  View read(std::size_t worker) override;
  Publication publish(std::size_t worker, float* gradient) override;
  void withdraw(std::size_t) override {}
  std::unique_ptr<Held> hold() override;
  Publication push(Gradient gradient, std::uint64_t t_read, StoreChoice& stores) override;
  Publication push_sparse(const SparseGradient& gradient, std::uint64_t t_read) override;
  // (As in read.)
  std::uint64_t updates() override { return t_.load(std::memory_order_acquire); }
  void with_snapshot(const std::function<void(const float*, std::uint64_t)>& f) override;
  void with_state(const std::function<void(const State&)>& f) override;
  std::size_t live_vectors() const override {
    return 1 + (!replicas_.empty() ? 2 * workers_.size() : copy_ ? workers_.size() : 0);
  }

  bool in_place() const override { return sparse_.active > 0; }
  InPlaceView open(std::size_t worker, std::uint64_t updates) override;
  Publication close(std::size_t worker, std::uint64_t updates, const RunEffect& effect) override;
  void leave(std::size_t worker) override;

 private:
  // The monitor's copy is taken; its version.
  std::uint64_t copy(std::size_t length);
  // And gets the decay that it misses.
  void complete();
  // Counts an update and has apply(replaced, tau) make it, unless the policy excludes it.
  template <class Apply>
  Publication update(double start, std::uint64_t t_read, const Apply& apply);
  // Takes the next version for an update of that gradient; false where the policy excludes it.
  bool count(std::uint64_t t_read, std::uint64_t& replaced);

  const bool copy_;
  const UpdateKernels& kernels_ = update_kernels();
  std::vector<LocalCopy> workers_;
  Replicas replicas_;
  std::vector<LazyShrink> shrinks_;  // one a worker, without replicas; with them none
  // One shared counter, incremented once an update before its first write (READINGS).
  alignas(kCacheLine) std::atomic<std::uint64_t> t_;
};

}  // namespace leashed
