// The gradients of a simulation, whose one thread is the one that looks at signals: those that last
// are computed by another meanwhile, and end early where the run is to.
#pragma once

#include <memory>

#include "leashed/model/gradient_source.h"
#include "leashed/simulation/watch.h"

namespace leashed {

class WatchedGradient {
 public:
  WatchedGradient(const GradientSource& source, Watch& watch)
      : source_(source), watch_(watch), workspace_(source.make_workspace()) {}

  // As the source's, whose exceptions it throws; worthless once watch.stop is stopped.
  float operator()(const float* theta, const BatchView& batch, float* gradient);

 private:
  float compute(const float* theta, const BatchView& batch, float* gradient);
  float compute_apart(const float* theta, const BatchView& batch, float* gradient);

  const GradientSource& source_;
  Watch& watch_;
  const std::unique_ptr<Workspace> workspace_;
  bool lasts_ = true;  // the last one did; of the first nobody knows
};

}  // namespace leashed
