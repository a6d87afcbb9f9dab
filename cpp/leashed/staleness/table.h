// A user's own policy: its values at τ = 0, 1, …, linear between them, the first one before and the
// last one after them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/staleness/policy.h"

namespace leashed {

class TableDamping final : public StalenessPolicy {
 public:
  explicit TableDamping(std::vector<double> values) : values_(std::move(values)) {
    if (values_.empty() || !(values_[0] > 0)) {
      throw Error("a staleness table needs a factor greater than 0 at staleness 0");
    }
    excludes_ = std::find(values_.begin(), values_.end(), 0.0) != values_.end();
  }
  double factor(double tau) const override {
    const double last = static_cast<double>(values_.size() - 1);
    if (!(tau > 0)) return values_[0];  // NaN, too
    if (tau >= last) return values_.back();
    const auto below = static_cast<std::size_t>(tau);
    const double share = tau - static_cast<double>(below);
    return values_[below] + share * (values_[below + 1] - values_[below]);
  }
  bool excludes() const override { return excludes_; }

 private:
  const std::vector<double> values_;
  bool excludes_;
};

}  // namespace leashed
