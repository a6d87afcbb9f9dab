// An update rule: how a gradient changes theta and the rule's own state, as one fused pass
// (docs/architecture.md, decision 2). What is one rule's alone is a struct of its own (rules.h);
// what all rules share is here: learning rate, weight decay, clipping, the gradient's sign, SWAP.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>

#include "leashed/update/kernels.h"
#include "leashed/update/layout.h"
#include "leashed/update/passes.h"
#include "leashed/update/schedule.h"
#include "leashed/update/stores.h"

namespace leashed {

// What an update knows of its place in the run.
struct Step {
  std::uint64_t t = 0;  // updates applied before this one
  double scale = 1;     // of the gradient: clipping by norm times staleness
  Stores stores = Stores::cached;
  // Of those t, how many these parameters had no part in: bias corrections do not count them.
  std::uint64_t missed = 0;
};

// Samples weighted according to period (extreme-scale-asgd, Algorithm 2): the accumulator of
// squared gradients is multiplied by `decay` at every period-th update, the first excepted, whether
// the parameter gets a gradient then or not.
struct Swap {
  std::uint64_t period = 0;  // 0: none
  double decay = 1;

  double keep(std::uint64_t t) const { return period && t && t % period == 0 ? decay : 1; }
};

// The penalty λ₁ |θ|₁ on the parameters [begin, end) by truncated gradient: after an update θ goes
// towards 0, and no farther, by all the ηλ₁ of the updates so far that it has not gone yet (the
// cumulative penalty of Tsuruoka, Tsujii and Ananiadou, 2009). What it may still go from above and
// from below is in two more vectors of state, the last ones.
struct Truncation {
  double l1 = 0;
  std::size_t begin = 0, end = 0;
};

struct RuleOptions {
  std::shared_ptr<const Schedule> lr;
  double weight_decay = 0;
  bool decoupled = false;  // weight decay shrinks theta rather than add to the gradient
  double clip_value = std::numeric_limits<double>::infinity();
  double clip_norm = std::numeric_limits<double>::infinity();
  bool maximize = false;  // the gradient's sign is turned, before weight decay
  Swap swap = {};
  Truncation truncation = {};
};

class Rule {
 public:
  virtual ~Rule() = default;

  // S, vectors of state beside theta, and what they hold before the first update.
  std::size_t states() const { return passes_.states + (options_.truncation.l1 > 0 ? 2 : 0); }
  virtual float initial_state() const = 0;
  // A buffer of that layout before the first update.
  void initialise(float* buffer, const Layout& layout, const float* theta) const;

  // What clipping by the global norm multiplies this gradient by. Read before the update, outside
  // of any lock and of any retry.
  double clip_factor(const float* gradient, std::size_t n) const {
    return clips_norm() ? clip_factor(kernels_.sum_of_squares(gradient, clip(), 0, n)) : 1;
  }
  // The same in slices: their sums of squares, and the factor from the sum of these.
  bool clips_norm() const { return std::isfinite(options_.clip_norm); }
  double sum_of_squares(const float* gradient, std::size_t begin, std::size_t end) const {
    return kernels_.sum_of_squares(gradient, clip(), begin, end);
  }
  double clip_factor(double sum_of_squares) const {
    // As torch.nn.utils.clip_grad_norm_; NaN stays NaN, to be found in the parameters.
    const double factor = options_.clip_norm / (std::sqrt(sum_of_squares) + 1e-6);
    return factor > 1 ? 1 : factor;
  }

  // next from current and gradient over [begin, end), the states of both buffers `stride` apart;
  // next may be current. The sum of squares of theta's change, where it is asked for.
  double apply(float* next, const float* current, std::size_t stride, const float* gradient,
               std::size_t begin, std::size_t end, const Step& step, bool measure = false) const;
  // In place, while other threads do the same and read (Hogwild).
  double apply_racy(float* buffer, std::size_t stride, const float* gradient, std::size_t begin,
                    std::size_t end, const Step& step, bool measure = false) const;

  // The same of parameters [begin, end) that get no gradient in this update: they stay as they are,
  // and so does their state, but that SWAP decays. In place also while other threads do the same.
  void leave(float* next, const float* current, std::size_t stride, std::size_t begin,
             std::size_t end, const Step& step) const;

  // Whether a parameter whose gradient is zero stays as it is, and its state.
  virtual bool keeps_untouched() const {
    return options_.weight_decay == 0 && options_.swap.period == 0 && options_.truncation.l1 == 0;
  }
  // For updates of some parameters alone by a gradient source, which does not clip: whether the
  // others stay as they are, and what is done with these.
  bool sparse() const {
    return keeps_untouched() && std::isinf(options_.clip_value) && !clips_norm() &&
           !options_.maximize;
  }
  // Whether its formula is that one (kArithmetic of rules.h).
  bool is(Arithmetic formula) const { return arithmetic_ == formula; }
  Coefficients coefficients(const Step& step) const;
  // What the learning rate never exceeds.
  double largest_lr() const { return options_.lr->largest(); }

 protected:
  Rule(Arithmetic arithmetic, RuleOptions options)
      : arithmetic_(arithmetic), options_(std::move(options)), passes_(pass_table()[arithmetic]) {}

  // Fills in what is the rule's own, for the update after so many; the rest is set.
  virtual void coefficients(double lr, std::uint64_t updates, Coefficients& c) const = 0;

 private:
  void truncate(float* next, const float* current, std::size_t stride, std::size_t begin,
                std::size_t end, const Step& step) const;
  float clip() const { return static_cast<float>(options_.clip_value); }

  const Arithmetic arithmetic_;
  const RuleOptions options_;
  const RulePasses& passes_;
  const UpdateKernels& kernels_ = update_kernels();
};

}  // namespace leashed
