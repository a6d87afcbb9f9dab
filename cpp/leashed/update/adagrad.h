// Adagrad: v ← v + g², θ ← θ − η g / (√v + ε).
#pragma once

#include "leashed/update/rule.h"

namespace leashed {

class Adagrad final : public Rule {
 public:
  Adagrad(RuleOptions options, double epsilon, double initial)
      : Rule(Arithmetic::adagrad, std::move(options)), epsilon_(epsilon), initial_(initial) {}

  float initial_state() const override { return static_cast<float>(initial_); }

 protected:
  void coefficients(std::uint64_t t, Coefficients& c) const override {
    c.lr = static_cast<float>(2 * lr(t));
    c.epsilon = static_cast<float>(2 * epsilon_);
  }

 private:
  const double epsilon_, initial_;
};

}  // namespace leashed
