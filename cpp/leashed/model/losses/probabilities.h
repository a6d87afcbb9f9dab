// The softmax of a row, for losses that are made of it. For kernel sources.
#pragma once

#include <cmath>
#include <limits>

#include "leashed/kernels/exponential.h"
#include "leashed/kernels/partial.h"

namespace leashed {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Folds halves until one is left, as a tree.
template <class Fold>
LEASHED_INLINE float folded(vfloat v, Fold fold) {
  float lanes[kLanes];
  vstore(lanes, v);
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] = fold(lanes[i], lanes[i + half]);
  }
  return lanes[0];
}
LEASHED_INLINE float largest(vfloat v) {
  return folded(v, [](float a, float b) { return a < b ? b : a; });
}
LEASHED_INLINE float total(vfloat v) {
  return folded(v, [](float a, float b) { return a + b; });
}

// What is known of a row behind its probabilities: p_k = e^(o_k − maximum) / sum.
struct Normaliser {
  float maximum, sum;
};
LEASHED_INLINE Normaliser probabilities(const float* o, float* p, std::size_t n) {
  const std::size_t whole = n / kLanes * kLanes;
  const std::size_t rest = n - whole;
  vfloat high = vset(-kInfinity);
  const auto raise = [&](vfloat v) { high = v > high ? v : high; };
  for (std::size_t j = 0; j < whole; j += kLanes) raise(vload(o + j));
  if (rest) raise(vload_partial(o + whole, rest, -kInfinity));
  const float maximum = largest(high);

  vfloat sums = {};
  for (std::size_t j = 0; j < whole; j += kLanes) {
    const vfloat e = exp_negative(vload(o + j) - maximum);
    vstore(p + j, e);
    sums += e;
  }
  if (rest) {
    const vfloat e = exp_negative(vload_partial(o + whole, rest, -kInfinity) - maximum);
    vstore_partial(p + whole, e, rest);
    sums += e;
  }
  const float sum = total(sums);
  const float inverse = 1.0f / sum;
  for (std::size_t j = 0; j < whole; j += kLanes) vstore(p + j, vload(p + j) * inverse);
  if (rest) vstore_partial(p + whole, vload_partial(p + whole, rest) * inverse, rest);
  return {maximum, sum};
}

}  // namespace
}  // namespace leashed
