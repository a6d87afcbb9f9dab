// Leashed-SGD (leashed-sgd, Algorithm 3): gradients are computed on a pinned published vector, and
// an update is a new vector published by CAS in the LAU-SPC loop, dropped after more than T_p
// failed attempts.
#pragma once

#include <vector>

#include "leashed/discipline/discipline.h"
#include "leashed/discipline/updater.h"
#include "leashed/vector/parameter_vector.h"

namespace leashed {

// T_p from a number that may be infinite.
inline std::uint64_t persistence_bound(double bound) {
  return bound < 9e15 ? static_cast<std::uint64_t>(bound) : ~std::uint64_t{0};
}

// The LAU-SPC loop (load and update, store persistence-conditional): publishes rule(latest,
// gradient), or drops the gradient after more than `persistence` failed attempts, or where the
// staleness policy excludes it. The gradient was computed on version t_read; its staleness, and
// with it the policy's factor, is that of the vector replaced, found anew on every attempt. The
// vector's length is the updater's layout's: state is published with theta.
// ParameterVector, or a participant in a SharedVector.
template <class Vector>
Publication load_and_update(Vector& vector, const Updater& updater, Gradient gradient,
                            std::uint64_t persistence, std::uint64_t t_read, StoreChoice& stores);

// The latest vector, pinned.
std::unique_ptr<Held> hold_latest(ParameterVector& vector);

class LeashedSgd final : public Discipline {
 public:
  // `persistence` is T_p.
  LeashedSgd(const DisciplineContext& context, std::uint64_t persistence);

  View read(std::size_t worker) override;
  Publication publish(std::size_t worker, float* gradient) override;
  void withdraw(std::size_t worker) override;
  std::unique_ptr<Held> hold() override { return hold_latest(vector_); }
  Publication push(Gradient gradient, std::uint64_t t_read, StoreChoice& stores) override {
    return load_and_update(vector_, updater_, gradient, persistence_, t_read, stores);
  }
  void with_snapshot(const std::function<void(const float*, std::uint64_t)>& f) override;
  std::size_t live_vectors() const override { return vector_.live(); }
  std::size_t peak_vectors() const override { return vector_.allocated(); }

 private:
  struct alignas(kCacheLine) Worker {
    ParameterVector::Pin view;
    StoreChoice stores;
  };
  const Updater updater_;
  const std::uint64_t persistence_;
  mutable ParameterVector vector_;
  std::vector<Worker> workers_;
};

}  // namespace leashed
