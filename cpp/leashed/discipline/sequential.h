// SEQ: one thread, the plain rule θ ← rule(θ, g(θ)). The lock is for the monitor's snapshot only.
#pragma once

#include "leashed/discipline/in_place.h"

namespace leashed {

class Sequential final : public Guarded {
 public:
  explicit Sequential(const DisciplineContext& context) : Guarded(context) {}

  View read(std::size_t worker) override;
  Publication publish(std::size_t worker, float* gradient) override;
  void withdraw(std::size_t) override {}
  std::unique_ptr<Held> hold() override { return hold_live(t_); }
  Publication push(Gradient gradient, std::uint64_t t_read, StoreChoice& stores) override;
  std::size_t live_vectors() const override { return 1; }
};

}  // namespace leashed
