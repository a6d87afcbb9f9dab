// One participant's part in the discipline under which processes train a vector that they share:
// Leashed-SGD (leashed-sgd, Algorithm 3), or HOGWILD! (Algorithm 4) where the vector is changed in
// place.
#pragma once

#include "leashed/discipline/updater.h"
#include "leashed/update/stores.h"
#include "leashed/vector/shared_vector.h"

namespace leashed {

class ParticipantSgd {
 public:
  // The vector, rule and policy must outlive it; `persistence` is T_p. Throws Error where every
  // seat is taken, or the vector's length is not that of theta and the rule's state.
  ParticipantSgd(SharedVector& vector, std::size_t dimension, const Rule& rule,
                 const StalenessPolicy& staleness, std::uint64_t persistence);

  // Applies a gradient that was computed on version t_read.
  Publication push(const float* gradient, std::uint64_t t_read);

  SharedVector::Participant& participant() { return participant_; }
  const Updater& updater() const { return updater_; }

 private:
  const Updater updater_;
  const std::uint64_t persistence_;
  SharedVector::Participant participant_;
  StoreChoice stores_;
};

}  // namespace leashed
