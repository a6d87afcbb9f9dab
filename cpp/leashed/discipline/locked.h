// AsyncSGD with a lock (leashed-sgd, Algorithm 2): copy theta under the lock, compute, update under
// the lock.
#pragma once

#include <mutex>
#include <vector>

#include "leashed/discipline/in_place.h"

namespace leashed {

class Locked final : public InPlace {
 public:
  Locked(const float* initial, std::size_t dimension, std::size_t workers, const Rule& rule)
      : InPlace(initial, dimension, rule), workers_(local_copies(workers, dimension)) {}

  View read(std::size_t worker) override;
  Publication publish(std::size_t worker, float* gradient) override;
  void withdraw(std::size_t) override {}
  void with_snapshot(const std::function<void(const float*, std::uint64_t)>& f) override;
  std::uint64_t t() const override;
  std::size_t live_vectors() const override { return 1 + workers_.size(); }

 private:
  mutable std::mutex mutex_;
  std::uint64_t t_ = 0;  // under the lock
  std::vector<LocalCopy> workers_;
};

}  // namespace leashed
