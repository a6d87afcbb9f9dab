// SEQ: one thread, the plain rule θ ← rule(θ, g(θ)). The lock is for the monitor's snapshot and for
// threads that read beside the one that pushes.
#pragma once

#include "leashed/discipline/guarded.h"

namespace leashed {

class Sequential final : public Guarded, public Open {
 public:
  explicit Sequential(const DisciplineContext& context) : Guarded(context) {}

  View read(std::size_t worker) override;
  Publication publish(std::size_t worker, float* gradient) override;
  void withdraw(std::size_t) override {}
  Open* open() override { return this; }
  std::unique_ptr<Held> hold() override { return hold_live(updates()); }
  Publication push(Gradient gradient, std::uint64_t t_read, StoreChoice& stores) override;
  std::size_t live_vectors() const override { return 1; }
};

}  // namespace leashed
