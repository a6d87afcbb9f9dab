// Adam, and AdamW where weight decay is decoupled. With SWAP the second moment at a period's end
// is decayed first; the first moment, a mean of the last few gradients, is not.
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
    c.lr = static_cast<float>(lr(t) / (1 - std::pow(beta1_, updates)));
    c.add1 = static_cast<float>(1 - beta1_);
    c.keep2 = static_cast<float>(beta2_ * keep(t));
    c.add2 = static_cast<float>(1 - beta2_);
    c.correction = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2_, updates)));
    c.epsilon = static_cast<float>(epsilon_);
  }

 private:
  const double beta1_, beta2_, epsilon_;
};

}  // namespace leashed
