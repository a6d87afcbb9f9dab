// What synchronisers ask for (policy/machine.h), carried out on vectors that lie here: a loop each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "leashed/policy/machine.h"

namespace leashed {

// The holder's side of an exchange; the trainer's values become its answer.
inline void interpolate(float* held, std::span<float> values, float alpha, bool old_reply) {
  if (old_reply) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float old = held[i];
      held[i] = (1 - alpha) * old + alpha * values[i];
      values[i] = old;
    }
  } else {
    for (std::size_t i = 0; i < values.size(); ++i) {
      held[i] = (1 - alpha) * held[i] + alpha * values[i];
      values[i] = held[i];
    }
  }
}

inline void average(std::span<float> sum, std::uint32_t members) {
  const float n = static_cast<float>(members);
  for (float& value : sum) value /= n;
}

inline void advance(const Action& action, std::span<float> other, float* global, float* velocity) {
  const float eta = action.eta, momentum = action.momentum;
  for (std::size_t i = 0; i < other.size(); ++i) {
    const float descent = eta * (other[i] - global[i]);
    velocity[i] = momentum * velocity[i] + descent;
    global[i] += action.nesterov ? descent + momentum * velocity[i] : velocity[i];
    other[i] = global[i];
  }
}

inline void mix(std::span<float> theta, const float* other, float alpha) {
  for (std::size_t i = 0; i < theta.size(); ++i) {
    theta[i] = (1 - alpha) * theta[i] + alpha * other[i];
  }
}

// theta ← theta + alpha (other − seen); where theta is what was seen, in the bits of `mix`.
inline void mix_difference(std::span<float> theta, const float* other, const float* seen,
                           float alpha) {
  for (std::size_t i = 0; i < theta.size(); ++i) {
    theta[i] = (1 - alpha) * seen[i] + alpha * other[i] + (theta[i] - seen[i]);
  }
}

}  // namespace leashed
