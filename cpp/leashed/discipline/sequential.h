// SEQ: one thread, the plain rule θ ← rule(θ, g(θ)). The lock is for the monitor's snapshot only.
#pragma once

#include <mutex>

#include "leashed/discipline/in_place.h"

namespace leashed {

class Sequential final : public InPlace {
 public:
  using InPlace::InPlace;

  View read(std::size_t worker) override;
  Publication publish(std::size_t worker, float* gradient) override;
  void withdraw(std::size_t) override {}
  void with_snapshot(const std::function<void(const float*, std::uint64_t)>& f) override;
  std::uint64_t t() const override;
  std::size_t live_vectors() const override { return 1; }

  Sequential(const float* initial, std::size_t dimension, const Rule& rule)
      : InPlace(initial, dimension, rule) {}

 private:
  mutable std::mutex mutex_;
  std::uint64_t t_ = 0;
};

}  // namespace leashed
