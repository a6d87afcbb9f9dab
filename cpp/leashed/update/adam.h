// Adam, and AdamW where weight decay is decoupled: m ← β₁ m + (1 − β₁) g, v ← β₂ v + (1 − β₂) g²,
// θ ← θ − η m̂ / (√v̂ + ε) with m̂ = m / (1 − β₁ⁿ), v̂ = v / (1 − β₂ⁿ), n = t + 1. With SWAP v is
// decayed; m, a mean of the last few gradients, is not.
#pragma once

#include <cmath>

#include "leashed/update/rule.h"

namespace leashed {

class Adam final : public Rule {
 public:
  Adam(RuleOptions options, double beta1, double beta2, double epsilon)
      : Rule(Arithmetic::adam, std::move(options)),
        beta1_(beta1),
        beta2_(beta2),
        epsilon_(epsilon) {}

 protected:
  void coefficients(std::uint64_t t, Coefficients& c) const override {
    const double updates = static_cast<double>(t) + 1;
    const double root_of_correction = std::sqrt(1 - std::pow(beta2_, updates));
    c.lr = static_cast<float>(2 * lr(t) * root_of_correction / (1 - std::pow(beta1_, updates)));
    c.add1 = static_cast<float>(1 - beta1_);
    c.add2 = static_cast<float>(1 - beta2_);
    c.epsilon = static_cast<float>(2 * epsilon_ * root_of_correction);
  }

 private:
  const double beta1_, beta2_, epsilon_;
};

}  // namespace leashed
