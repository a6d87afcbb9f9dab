#include "leashed/sparse/runs.h"

#include <algorithm>

#include "leashed/update/kernels.h"
#include "leashed/update/rule.h"

namespace leashed {

RunEffect InPlaceView::effect_with(std::uint64_t k, std::uint64_t updates, std::uint64_t claim,
                                   double curvature, double l2) const {
  const double lr = rule->coefficients({t - std::min(t, k % claim)}).lr;
  RunEffect sum = effect.with(updates, lr, curvature, l2);
  sum.whole = (k + updates) % claim == 0;
  return sum;
}

void InPlaceView::read(float* to, std::size_t dimension) const {
  const std::size_t here = others ? copied : dimension;
  update_kernels().copy_racy(to, theta, here);
  if (here < dimension) update_kernels().copy_racy(to + here, others + here, dimension - here);
}

}  // namespace leashed
