// Copies of the shared vector, one a worker, for updates that touch few parameters each. Written
// straight to the shared vector, such updates send every cache line that two threads use back and
// forth between them, and the parameters that occur most often sit in all threads' lines at once.
// So a worker changes its own copy, and now and then merges: adds to the shared vector what it has
// changed since its last merge, and takes over what is there then.
//
// How often must follow how often a parameter changes: one that all threads change all the time,
// each from the same old value, would overshoot. The parameters are ordered by how often they occur
// (ordered_rows.h), so a merge is of a prefix. Tier 0 is the intercept and the first kFirst columns
// (fewer, or none, where there are no more), tier z the next 2^(z-1) · kFirst; merge number s is of
// the first 1 + (how often 2 divides s) tiers. Where occurrences follow Zipf's law, the column of
// rank r is used about 1/r as often as the first and merged as often, so each sees about as many
// updates of its own between merges as any other, and every tier costs the same. A merge reads and
// writes memory in order.
//
// Where a parameter has gone all the way to its optimum between two merges, in all m copies at
// once, the sum of their changes would go m times as far. So where each goes a part g of the way,
// and m g is more than 1, changes are weighted with 1 / (m g), down to 1/m, their mean. g = 1 −
// e^−c, with c estimated from the learning rate, the loss's curvature and the mean square of the
// column's values, times kMargin, since columns do not change alone. What a column has more than
// one parameter for is weighted alike.
//
// Merging the first tier is as racy as Hogwild is: two merges at once may lose part of one. Of the
// others one worker at a time merges: they come to them at the same pace, and would go through the
// same memory side by side and lose much of what the parameters that change seldom have learnt.
// Whoever finds another merging does not wait but merges after its next run, but for the last
// merge.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/sparse/runs.h"
#include "leashed/update/kernels.h"
#include "leashed/update/layout.h"

namespace leashed {

class Replicas {
 public:
  // Of the first `use.active` parameters in a buffer of that layout, and their state. No workers:
  // no copies.
  Replicas(const float* buffer, const Layout& layout, std::size_t workers, const SparseUse& use);

  bool empty() const { return replicas_.empty(); }
  // The worker's copy, laid out as the buffer is.
  float* local(std::size_t worker) { return replicas_[worker].local.data(); }
  std::size_t stride() const { return stride_; }
  // Parameters that it has.
  std::size_t active() const { return use_.active; }
  // Of the worker's runs so far.
  const RunEffect& effect(std::size_t worker) const { return replicas_[worker].total; }

  // After a run of updates, which brings the effect to this: the next merge.
  void merge(std::size_t worker, float* buffer, const RunEffect& effect);
  // Everything.
  void merge_all(std::size_t worker, float* buffer);

 private:
  static constexpr std::size_t kFirst = 64;
  static constexpr double kMargin = 2;

  struct alignas(kCacheLine) Replica {
    AlignedArray<float> local, base;  // now, and at the last merge
    std::uint64_t merges = 0;
    std::size_t due = 0;          // tiers to merge next
    RunEffect total;              // so far
    std::vector<RunEffect> done;  // of it, what each tier has had
  };
  // What a change is weighted with.
  float weight(double contraction, double mean_square) const;
  void merge_tiers(Replica& replica, float* buffer, std::size_t tiers);

  const UpdateKernels& kernels_ = update_kernels();
  const SparseUse use_;
  const std::size_t buffer_stride_, parts_, stride_;
  std::vector<std::size_t> ends_;     // of the tiers, in parameters
  std::vector<double> mean_squares_;  // the largest of each tier
  std::vector<Replica> replicas_;
  std::mutex merging_;  // more than the first tier
};

}  // namespace leashed
