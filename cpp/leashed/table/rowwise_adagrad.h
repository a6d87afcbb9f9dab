// Row-wise Adagrad (Gupta, Bengio and Weston, 2014; as embedding tables have it in FBGEMM): one
// value of state for a row of dim parameters, v ← v + Σ ĝ² / dim, θ ← θ − η ĝ / (√v + ε).
#pragma once

#include "leashed/update/adagrad.h"

namespace leashed {

struct RowwiseAdagrad : Adagrad {
  static constexpr const char* kName = "rowwise_adagrad";
  static constexpr bool kRowwise = true;  // its kernel sees whole rows (kernels/rows.cc)

  using Adagrad::Adagrad;
};

}  // namespace leashed
