// RMSprop: v ← α v + (1 − α) g², θ ← θ − η g / (√v + ε). With SWAP the v at a period's end is
// decayed first.
#pragma once

#include "leashed/update/rule.h"

namespace leashed {

class Rmsprop final : public Rule {
 public:
  Rmsprop(RuleOptions options, double alpha, double epsilon)
      : Rule(Arithmetic::rmsprop, std::move(options)), alpha_(alpha), epsilon_(epsilon) {}

 protected:
  void coefficients(std::uint64_t t, Coefficients& c) const override {
    c.keep2 = static_cast<float>(alpha_ * keep(t));
    c.add2 = static_cast<float>(1 - alpha_);
    c.epsilon = static_cast<float>(epsilon_);
  }

 private:
  const double alpha_, epsilon_;
};

}  // namespace leashed
