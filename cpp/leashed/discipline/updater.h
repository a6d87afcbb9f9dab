// What every discipline does with a gradient: the update rule on the gradient that the staleness
// policy has damped. Disciplines differ in where they read and write; how, is here.
#pragma once

#include <cstdint>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/discipline/context.h"
#include "leashed/discipline/publication.h"
#include "leashed/update/rule.h"

namespace leashed {

class Updater {
 public:
  explicit Updater(const DisciplineContext& context);
  // Of a rule alone: no staleness policy.
  Updater(std::size_t dimension, const Rule& rule);

  // The buffer that a discipline keeps or publishes.
  const Layout& layout() const { return layout_; }
  // The buffer to start from: theta and the state before the first update, or what was saved.
  void initialise(float* buffer, const DisciplineContext& context) const;
  AlignedArray<float> initial(const DisciplineContext& context) const;

  // What the staleness policy multiplies a gradient by.
  struct Damping {
    double factor = 1;  // 0: the gradient is left out; of a stage-aware policy, the largest of
    const double* variables = nullptr;  // each variable's, until the thread's next; else null
  };
  // Of a gradient of that staleness that is to be applied to `current`.
  Damping damping(const float* current, std::uint64_t tau) const;
  // Whether the policy ever leaves a gradient out.
  bool may_exclude() const { return staleness_.excludes(); }

  // Of one update.
  struct Update {
    std::uint64_t t;  // updates applied before it
    Damping damping;
    double clip_factor;  // of its gradient: clip_factor(gradient), found once whatever the tries
    Stores stores = Stores::cached;
    std::uint64_t missed = 0;  // of those t (rule.h)
  };
  double clip_factor(Gradient gradient) const;
  double clip_factor(const SparseGradient& gradient) const {
    return rule_.clip_factor(gradient.values, gradient.size);
  }
  bool clips_norm() const { return rule_.clips_norm(); }

  // next ← rule(current, gradient), both whole buffers; next may be current.
  void apply(float* next, const float* current, Gradient gradient, const Update& update) const;
  // In place, while other threads do the same and read.
  void apply_racy(float* buffer, Gradient gradient, const Update& update) const;
  // That piece of a gradient alone; what it does not cover gets its own.
  void apply_part_racy(float* buffer, const GradientPiece& piece, const Update& update) const;
  void apply_sparse_racy(float* buffer, const SparseGradient& gradient, const Update& update) const;
  // Throws Error where a parameter whose gradient is zero would not stay as it is.
  void check_sparse() const;
  // Parameters [begin, end), in place, at staleness 0, with the gradient's factors known.
  void apply_slice(float* buffer, const float* gradient, std::size_t begin, std::size_t end,
                   const Step& step) const {
    rule_.apply(buffer, buffer, layout_.stride(), gradient, begin, end, step);
  }
  double fresh_factor() const { return staleness_.factor(0); }

  // Once for each update applied, after its damping was asked for and as soon as its version is
  // counted: what has been observed is then of the same moment as the parameters.
  void applied(std::uint64_t tau) const { staleness_.observe(tau); }

  const Rule& rule() const { return rule_; }

 private:
  // f(values, block, begin, end) for each stretch of one piece in one block; where norms of blocks
  // are kept, a piece must not end within a block. leave(begin, end) for what no piece covers.
  template <class F, class Leave>
  void for_each_stretch(Gradient gradient, F&& f, Leave&& leave) const;

  // apply_racy, with uncovered(begin, end) for what no piece covers.
  template <class Uncovered>
  void apply_racy(float* buffer, Gradient gradient, const Update& update,
                  Uncovered&& uncovered) const;

  const Rule& rule_;
  const StalenessPolicy& staleness_;
  const UpdateKernels& kernels_ = update_kernels();
  const std::vector<std::size_t> block_ends_;
  const Layout layout_;
};

}  // namespace leashed
