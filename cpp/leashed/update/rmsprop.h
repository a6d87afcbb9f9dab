// RMSprop: v ← α v + (1 − α) g², θ ← θ − η g / (√v + ε).
#pragma once

#include "leashed/update/rule.h"

namespace leashed {

class Rmsprop final : public Rule {
 public:
  Rmsprop(RuleOptions options, double alpha, double epsilon)
      : Rule(Arithmetic::rmsprop, std::move(options)), alpha_(alpha), epsilon_(epsilon) {}

 protected:
  void coefficients(std::uint64_t t, Coefficients& c) const override {
    c.lr = static_cast<float>(2 * lr(t));
    c.add2 = static_cast<float>(1 - alpha_);
    c.epsilon = static_cast<float>(2 * epsilon_);
  }

 private:
  const double alpha_, epsilon_;
};

}  // namespace leashed
