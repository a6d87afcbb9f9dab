// The parameters that a server holds: a published vector, replaced by an update at a time, so that
// whoever has pulled a version keeps it for as long as it is wanted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "leashed/discipline/updater.h"
#include "leashed/vector/parameter_vector.h"

namespace leashed {

class Holder {
 public:
  // From the context: the parameters to begin with, the rule, and how many `workers` pull at once.
  explicit Holder(const DisciplineContext& context)
      : updater_(context),
        vector_(updater_.initial(context).data(), updater_.layout().length(), 1,
                context.workers + context.readers, context.t) {}

  // The parameters now, and the updates made to them, as long as it is kept.
  ParameterVector::Pin pull() { return vector_.pin(); }

  // θ ← rule(θ, factor · gradient).
  void apply(const float* gradient, double factor) {
    const GradientPiece whole{gradient, 0, updater_.layout().dimension};
    const double clip_factor = updater_.clip_factor({&whole, 1});
    ParameterVector::Draft next = vector_.claim();
    ParameterVector::Pin latest = vector_.pin();
    updater_.apply(next.data(), latest.data(), {&whole, 1}, {latest.t(), {factor}, clip_factor});
    vector_.publish(latest, next);
  }
  // θ ← f(θ), which is an update all the same; the rule's state stays.
  void change(const std::function<void(float* theta)>& f) {
    ParameterVector::Draft next = vector_.claim();
    ParameterVector::Pin latest = vector_.pin();
    std::copy_n(latest.data(), vector_.length(), next.data());
    f(next.data());
    vector_.publish(latest, next);
  }

  const Updater& updater() const { return updater_; }
  std::size_t dimension() const { return updater_.layout().dimension; }
  std::size_t live_vectors() const { return vector_.live(); }
  std::size_t peak_vectors() const { return vector_.allocated(); }

 private:
  const Updater updater_;
  ParameterVector vector_;
};

}  // namespace leashed
