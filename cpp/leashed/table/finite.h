// What is said of gradients of rows that are not finite, before anything is updated by them.
#pragma once

#include <cstddef>
#include <string>

#include "leashed/base/error.h"
#include "leashed/update/kernels.h"

namespace leashed {

// Throws Error where one of gradients [n][dim] is not.
inline void require_finite(const float* gradients, std::size_t n, std::size_t dim) {
  const std::size_t bad = update_kernels().first_not_finite(gradients, n * dim);
  if (bad == n * dim) return;
  throw Error("gradients[" + std::to_string(bad / dim) + ", " + std::to_string(bad % dim) +
              "] is " + std::to_string(gradients[bad]) + "; every value must be finite");
}

// Throws Error where one of the sums of gradients is not, though all gradients are.
inline void require_finite_sums(const float* sums, std::size_t floats) {
  if (update_kernels().first_not_finite(sums, floats) == floats) return;
  throw Error("the gradients of an id add up to what is not finite; scale them down");
}

}  // namespace leashed
