// Takes checkpoints while workers go on: state and statistics of one moment, without stopping
// anybody.
//
// Every applied update is observed by the staleness policy exactly once, next to the increment of
// the version. So what the policy has gathered is of version t where its count says t. What it has
// is copied, then the state, and where the two do not fit the first once more; where they still do
// not, another try follows.
//
// What a source averages beside the parameters (GradientSource::running) is learnt with a gradient
// and so ahead of the version that this leads to. One worker's is copied likewise, where it is of
// as many gradients as the state; several workers' is that of the moment of the state, and ahead by
// the gradients that they are about to publish.
#pragma once

#include <optional>
#include <vector>

#include "leashed/engine/saver.h"
#include "leashed/engine/training.h"
#include "leashed/staleness/policy.h"
#include "leashed/update/layout.h"

namespace leashed {

class Saving final : public Saver {
 public:
  // The policy must have what it begins with. Null: it gathers nothing.
  Saving(const Training& training, const Layout& layout, const StalenessPolicy* staleness);

  // Nothing where in a short time there was no such moment.
  std::optional<Checkpoint> take(double initial_loss) override;

  // Batches whose gradients are in theta at version t, or were given up. Not those that workers
  // have claimed ahead: a training that goes on uses them again.
  std::uint64_t used_batches(std::uint64_t t) const;

 private:
  bool try_to_take(Checkpoint& taken);
  // Whether what the source averages is of version t, as far as it is to be.
  bool running_fits(const Checkpoint& taken, std::uint64_t t) const;
  // Whether the policy's numbers are of version t.
  bool fit(const std::vector<std::uint64_t>& numbers, std::uint64_t t) const;

  const Training& training_;
  const Layout layout_;
  const StalenessStatistics* const statistics_;
  std::vector<std::uint64_t> before_;  // its numbers at the beginning
};

}  // namespace leashed
