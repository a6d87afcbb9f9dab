// SGD: θ ← θ − η g (leashed-sgd, eq. 1).
#pragma once

#include "leashed/update/rule.h"

namespace leashed {

class Sgd final : public Rule {
 public:
  explicit Sgd(RuleOptions options) : Rule(Arithmetic::sgd, std::move(options)) {}

 protected:
  void coefficients(std::uint64_t, Coefficients&) const override {}
};

}  // namespace leashed
