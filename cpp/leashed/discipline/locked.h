// AsyncSGD with a lock (leashed-sgd, Algorithm 2): copy theta under the lock, compute, update under
// the lock.
#pragma once

#include <vector>

#include "leashed/discipline/guarded.h"
#include "leashed/discipline/local_copy.h"

namespace leashed {

class Locked final : public Guarded, public Open {
 public:
  explicit Locked(const DisciplineContext& context)
      : Guarded(context),
        workers_(local_copies(context.workers, buffer_.size(), context.dimension)) {}

  View read(std::size_t worker) override;
  Publication publish(std::size_t worker, float* gradient) override;
  void withdraw(std::size_t) override {}
  Open* open() override { return this; }
  std::unique_ptr<Held> hold() override;
  Publication push(Gradient gradient, std::uint64_t t_read, StoreChoice& stores) override;
  std::size_t live_vectors() const override { return 1 + workers_.size(); }

 private:
  std::vector<LocalCopy> workers_;
};

}  // namespace leashed
