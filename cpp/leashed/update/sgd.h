// SGD: θ ← θ − η g (leashed-sgd, eq. 1).
#pragma once

#include "leashed/base/cache.h"
#include "leashed/update/kernels.h"
#include "leashed/update/rule.h"

namespace leashed {

class Sgd final : public Rule {
 public:
  explicit Sgd(float step_size) : step_size_(step_size) {}

  void apply(float* next, const float* current, const float* gradient,
             std::size_t n) const override {
    const bool past_the_caches = next != current && exceeds_caches(3 * n * sizeof(float));
    (past_the_caches ? kernels_.sgd_stream : kernels_.sgd)(next, current, gradient, step_size_, n);
  }
  void apply_racy(float* theta, const float* gradient, std::size_t n) const override {
    kernels_.sgd_racy(theta, gradient, step_size_, n);
  }

 private:
  const float step_size_;
  const UpdateKernels& kernels_ = update_kernels();
};

}  // namespace leashed
