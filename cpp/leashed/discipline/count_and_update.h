// HOGWILD!'s update (leashed-sgd, Algorithm 4), which Leashed's load_and_update is the counterpart
// of: takes the next version, unless the staleness policy leaves the gradient out, and then changes
// the vector where it lies.
#pragma once

#include <cstdint>

#include "leashed/base/clock.h"
#include "leashed/discipline/updater.h"
#include "leashed/update/stores.h"

namespace leashed {

// Vector: a participant in a SharedVector, or what a discipline keeps for its threads. It has the
// version t(), counts an update with count(), which gives the version replaced, or with count(t) if
// the version is still t (else t is what it is by then). apply(update) makes the update of the
// version replaced.
template <class Vector, class AnyGradient, class Apply>
Publication count_and_update(Vector& vector, const Updater& updater, const AnyGradient& gradient,
                             std::uint64_t t_read, const Apply& apply) {
  const double start = now();
  Publication result;
  Updater::Update update{.t = 0, .damping = {}, .clip_factor = updater.clip_factor(gradient)};
  if (!updater.may_exclude()) {
    result.t = vector.count();
    update.damping = updater.damping(vector.data(), result.t - t_read);
  } else {
    // τ must be known before the update is counted.
    result.t = vector.t();
    do {
      update.damping = updater.damping(vector.data(), result.t - t_read);
      result.excluded = update.damping.factor == 0;
    } while (!result.excluded && !vector.count(result.t));
  }
  result.factor = update.damping.factor;
  result.factors = update.damping.variables;
  if (!result.excluded) {
    update.t = result.t;
    result.published = true;
    result.staleness_compute = result.t - t_read;
    updater.applied(result.staleness_compute);  // not after the long pass
    apply(update);
  }
  result.update_seconds = now() - start;
  return result;
}

// With a dense gradient; `stores` is the calling thread's own.
template <class Vector>
Publication count_and_update(Vector& vector, const Updater& updater, Gradient gradient,
                             std::uint64_t t_read, StoreChoice& stores) {
  const auto apply = [&](Updater::Update update) {
    const double begin = now();
    update.stores = stores.at(update.t);
    updater.apply_racy(vector.data(), gradient, update);
    stores.took(update.t, now() - begin);
  };
  return count_and_update(vector, updater, gradient, t_read, apply);
}

}  // namespace leashed
