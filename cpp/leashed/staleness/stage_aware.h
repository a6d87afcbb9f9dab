// The stage-aware transform over any policy (extreme-scale-asgd, eqs. 5 and 6): ρ(τ · trans(Δw)),
// trans(Δw) = sigmoid(λ |Δw|), |Δw| the Euclidean norm of the variable's last update.
#pragma once

#include <cmath>
#include <memory>
#include <utility>

#include "leashed/staleness/policy.h"

namespace leashed {

class StageAware final : public StalenessPolicy {
 public:
  StageAware(std::unique_ptr<const StalenessPolicy> policy, double lambda)
      : policy_(std::move(policy)), lambda_(lambda) {}

  double factor(double tau) const override { return policy_->factor(tau); }
  bool excludes() const override { return policy_->excludes(); }
  bool stage_aware() const override { return true; }
  double stage(double last_update) const override {
    return 1 / (1 + std::exp(-lambda_ * last_update));
  }
  void observe(std::uint64_t tau) const override { policy_->observe(tau); }
  StalenessStatistics* statistics() const override { return policy_->statistics(); }

 private:
  const std::unique_ptr<const StalenessPolicy> policy_;
  const double lambda_;
};

}  // namespace leashed
