// An update rule: how a gradient changes theta, as one fused pass (DESIGN decision 2).
#pragma once

#include <cstddef>

namespace leashed {

class Rule {
 public:
  virtual ~Rule() = default;
  // next[0..n) from current[0..n) and gradient[0..n); next may be current.
  virtual void apply(float* next, const float* current, const float* gradient,
                     std::size_t n) const = 0;
  // In place, while other threads do the same and read (Hogwild).
  virtual void apply_racy(float* theta, const float* gradient, std::size_t n) const = 0;
};

}  // namespace leashed
