// The protocol of sparse runs: where an update touches few parameters, a worker makes a run of them
// itself, where the parameters lie (GradientSource::update), instead of reading, computing a
// gradient and publishing it. Who owns the parameters says where a run may be made, and takes it
// back with what it does beside adding gradients.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "leashed/sparse/column_shape.h"

namespace leashed {

class Rule;

// Which parameters such updates touch.
struct SparseUse {
  std::size_t active = 0;  // parameters that change at all, which come first; 0: no such updates
  ColumnShape shape = {};  // of the model: its intercepts come first of all
  // Of each column that changes, the mean square of its values over all rows; outlives its user.
  // Null: that is not known, nor that columns come by how often they occur.
  const float* mean_squares = nullptr;
};

// What a worker's runs of updates do beside adding gradients, summed up from the first.
struct RunEffect {
  double log_shrink = 0;   // what is no intercept is to be multiplied by e to this
  double contraction = 0;  // Σ η · the loss's largest curvature
  bool whole = true;       // the last run was not cut short

  // With one more run of so many updates, of a model of that curvature and penalty λ/2 |w|². They
  // count with the learning rate at the run's first update, and their factors are added one by one,
  // so that one thread's sum has the same bits wherever a checkpoint cuts the run in two.
  RunEffect with(std::uint64_t updates, double lr, double curvature, double l2) const {
    RunEffect sum = *this;
    sum.contraction += static_cast<double>(updates) * lr * curvature;
    if (l2 == 0) return sum;
    const double log_factor = std::log1p(-lr * l2);
    for (std::uint64_t i = 0; i < updates; ++i) sum.log_shrink += log_factor;
    return sum;
  }
};

// How far lazy weight decay has come (lazy_shrink.h), in logarithms of factors.
struct ShrinkProgress {
  double total = 0;          // what the updates so far shrink theta by
  std::vector<double> done;  // of it, what each part has had
  std::size_t next = 0;      // the part whose turn it is

  bool begun() const { return total != 0; }
};

// Theta as it is where updates are made, while some of it is to get weight decay yet, and how far
// that has come. Null: theta has all of it.
struct Behind {
  const float* theta = nullptr;
  const ShrinkProgress* shrink = nullptr;
};

// Where a worker makes a run of updates itself.
struct InPlaceView {
  float* theta = nullptr;
  std::size_t stride = 0;  // from theta to the rule's state
  std::uint64_t t = 0;     // updates applied before
  const Rule* rule = nullptr;
  double waiting_seconds = 0;
  RunEffect effect = {};  // so far, for close to be given with this run's added
  // Of a copy: how many parameters it has, and where the others are, which no run changes.
  std::size_t copied = 0;
  const float* others = nullptr;

  // So many parameters, as they are now.
  void read(float* to, std::size_t dimension) const;
  // With those of batch k on, of runs of so many that workers claim. The learning rate is that of
  // the claim's first.
  RunEffect effect_with(std::uint64_t k, std::uint64_t updates, std::uint64_t claim,
                        double curvature, double l2) const;
};

// What became of a run.
struct ClosedRun {
  std::uint64_t staleness = 0;  // the mean over its updates
  double update_seconds = 0;    // in close
};

class SparseRuns {
 public:
  virtual ~SparseRuns() = default;

  // The worker makes so many updates from now on.
  virtual InPlaceView open(std::size_t worker, std::uint64_t updates) = 0;
  // It has.
  virtual ClosedRun close(std::size_t worker, std::uint64_t updates, const RunEffect& effect) = 0;
  // The worker has made its last.
  virtual void leave(std::size_t /*worker*/) {}
};

}  // namespace leashed
