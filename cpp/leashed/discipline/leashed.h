// Leashed-SGD (leashed-sgd, Algorithm 3): gradients are computed on a pinned published vector, and
// an update is a new vector published by CAS in the LAU-SPC loop, dropped after more than T_p
// failed attempts.
#pragma once

#include <vector>

#include "leashed/discipline/discipline.h"
#include "leashed/discipline/open.h"
#include "leashed/discipline/updater.h"
#include "leashed/vector/parameter_vector.h"

namespace leashed {

// T_p from a number that may be infinite.
inline std::uint64_t persistence_bound(double bound) {
  return bound < 9e15 ? static_cast<std::uint64_t>(bound) : ~std::uint64_t{0};
}

// One update by the LAU-SPC loop (load and update, store persistence-conditional): publishes
// rule(latest, gradient), or drops the gradient after more than `persistence` failed attempts, or
// where the staleness policy excludes it. In two steps, so that one thread that plays many can let
// time pass between them; a draft is held from the beginning, and a pin from load to commit.
// ParameterVector, or a participant in a SharedVector; its length is the updater's layout's: state
// is published with theta.
template <class Vector>
class LeashedUpdate {
 public:
  // What is referred to must outlive the update. The gradient was computed on version t_read.
  LeashedUpdate(Vector& vector, const Updater& updater, Gradient gradient,
                std::uint64_t persistence, std::uint64_t t_read, StoreChoice& stores);

  // Applies the gradient to the latest vector. Its staleness, and with it the policy's factor, is
  // that of this vector, found anew on every attempt. False where the policy excludes it: then the
  // update is over.
  bool load();
  enum class Outcome { published, lost, dropped };
  // Publishes what was loaded. Lost: another update was first, and this one is to be loaded again.
  Outcome commit();

  // Once it is over.
  const Publication& result() const { return result_; }

 private:
  Vector& vector_;
  const Updater& updater_;
  const Gradient gradient_;
  const std::uint64_t persistence_, t_read_;
  StoreChoice& stores_;
  typename Vector::Draft next_;
  const double start_;
  const double clip_factor_;
  typename Vector::Pin latest_;
  std::uint64_t t_entry_ = 0;
  Publication result_;
};

// Both steps, until it is over.
template <class Vector>
Publication load_and_update(Vector& vector, const Updater& updater, Gradient gradient,
                            std::uint64_t persistence, std::uint64_t t_read, StoreChoice& stores);

// The latest vector, pinned.
std::unique_ptr<Held> hold_latest(ParameterVector& vector);

class LeashedSgd final : public Discipline, public Open {
 public:
  // `persistence` is T_p.
  LeashedSgd(const DisciplineContext& context, std::uint64_t persistence);

  View read(std::size_t worker) override;
  Publication publish(std::size_t worker, float* gradient) override;
  void withdraw(std::size_t worker) override;
  void transform(std::size_t begin, std::size_t end, const Transform& f) override;
  void look(float* copy, const std::function<void(const float*)>& f) override;

  // What publish does, for who takes its two steps apart: gives the worker's last view up.
  LeashedUpdate<ParameterVector> begin(std::size_t worker, const float* gradient);

  Open* open() override { return this; }
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
    GradientPiece gradient;  // of the update under way
  };
  const Updater updater_;
  const std::uint64_t persistence_;
  mutable ParameterVector vector_;
  std::vector<Worker> workers_;
};

}  // namespace leashed
