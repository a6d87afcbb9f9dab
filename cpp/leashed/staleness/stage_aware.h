// The stage-aware transform over any policy (extreme-scale-asgd, eqs. 5 and 6): ρ(τ · trans(Δw)),
// trans(Δw) = sigmoid(λ |Δw|), |Δw| the Euclidean norm of the variable's last update. What trans
// multiplies is the staleness counted from 0; as printed, that counted from 1
// (docs/readings.md#staleness-and-data-normalisation-swap).
#pragma once

#include <cmath>
#include <memory>
#include <utility>

#include "leashed/staleness/policy.h"

namespace leashed {

class StageAware final : public StalenessPolicy {
 public:
  StageAware(std::unique_ptr<const StalenessPolicy> policy, double lambda, bool as_printed)
      : policy_(std::move(policy)), lambda_(lambda), first_(as_printed ? 1 : 0) {}

  double factor(double tau) const override { return policy_->factor(tau); }
  bool excludes() const override { return policy_->excludes(); }
  bool stage_aware() const override { return true; }
  double staged(double tau, double last_update) const override {
    return (tau + first_) * (1 / (1 + std::exp(-lambda_ * last_update))) - first_;
  }
  void observe(std::uint64_t tau) const override { policy_->observe(tau); }
  StalenessStatistics* statistics() const override { return policy_->statistics(); }

 private:
  const std::unique_ptr<const StalenessPolicy> policy_;
  const double lambda_, first_;
};

}  // namespace leashed
