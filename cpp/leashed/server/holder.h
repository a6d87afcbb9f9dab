// The parameters that a server holds. An update is made where they are held, with the rule's state,
// and then published: whoever has pulled a version keeps it for as long as it is wanted. Versions
// are of the parameters alone, since nobody pulls the state: thousands of them are not held by
// caches, so that what an update costs is mostly what it writes of a new one.
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
        held_(updater_.initial(context)),
        vector_(held_.data(), updater_.layout().dimension, 1, context.workers + context.readers,
                context.t) {}

  // The parameters now, and the updates made to them, as long as it is kept.
  ParameterVector::Pin pull() { return vector_.pin(); }

  // θ ← rule(θ, factor · gradient). in_parts(f) calls f(begin, end) for all parameters, in parts of
  // whole cache lines and by any threads.
  template <class InParts>
  void apply(const float* gradient, double factor, const InParts& in_parts) {
    const GradientPiece whole{gradient, 0, dimension()};
    const double scale = factor * updater_.clip_factor({&whole, 1});
    ParameterVector::Draft next = vector_.claim();  // before anything changes
    ParameterVector::Pin latest = vector_.pin();
    const std::uint64_t t = latest.t();
    float* const published = next.data();
    in_parts([&](std::size_t begin, std::size_t end) {
      updater_.apply_slice(held_.data(), gradient, begin, end, {t, scale});
      std::copy(held_.data() + begin, held_.data() + end, published + begin);
    });
    vector_.publish(latest, next);
  }
  // The same where a policy has a factor for each variable.
  void apply(const float* gradient, const Updater::Damping& damping) {
    const GradientPiece whole{gradient, 0, dimension()};
    const double clip_factor = updater_.clip_factor({&whole, 1});
    ParameterVector::Draft next = vector_.claim();
    ParameterVector::Pin latest = vector_.pin();
    updater_.apply(held_.data(), held_.data(), {&whole, 1}, {latest.t(), damping, clip_factor});
    std::copy_n(held_.data(), dimension(), next.data());
    vector_.publish(latest, next);
  }
  // What the policy multiplies a gradient of that staleness by that is to be applied now.
  Updater::Damping damping(std::uint64_t tau) const { return updater_.damping(held_.data(), tau); }
  // θ ← f(θ), which is an update all the same; the rule's state stays.
  void change(const std::function<void(float* theta)>& f) {
    ParameterVector::Draft next = vector_.claim();
    ParameterVector::Pin latest = vector_.pin();
    f(held_.data());
    std::copy_n(held_.data(), dimension(), next.data());
    vector_.publish(latest, next);
  }

  // θ and the rule's state, as so many updates have left them that were made elsewhere.
  void take(const float* buffer, std::uint64_t updates) {
    ParameterVector::Draft next = vector_.claim();
    ParameterVector::Pin latest = vector_.pin();
    std::copy_n(buffer, held_.size(), held_.data());
    std::copy_n(buffer, dimension(), next.data());
    vector_.publish(latest, next, updates);
  }

  // θ and the rule's state, while nobody changes them.
  const float* held() const { return held_.data(); }
  const Updater& updater() const { return updater_; }
  std::size_t dimension() const { return updater_.layout().dimension; }
  std::size_t live_vectors() const { return vector_.live(); }
  std::size_t peak_vectors() const { return vector_.allocated(); }

 private:
  const Updater updater_;
  AlignedArray<float> held_;  // θ and the rule's state
  ParameterVector vector_;
};

}  // namespace leashed
