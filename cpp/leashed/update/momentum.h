// SGD with momentum, plain (b ← μ b + g, θ ← θ − η b) and Nesterov's (θ ← θ − η (g + μ b)).
#pragma once

#include "leashed/update/rule.h"

namespace leashed {

class Momentum final : public Rule {
 public:
  Momentum(RuleOptions options, double momentum, bool nesterov)
      : Rule(nesterov ? Arithmetic::nesterov : Arithmetic::momentum, std::move(options)),
        momentum_(momentum) {}

 protected:
  void coefficients(std::uint64_t, Coefficients& c) const override {
    c.momentum = static_cast<float>(momentum_);
  }

 private:
  const double momentum_;
};

}  // namespace leashed
