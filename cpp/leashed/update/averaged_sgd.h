// Averaged SGD: θ ← θ − η ĝ, and a, the mean of the θ from the update after `begin` on; until then
// it is θ (Polyak and Juditsky, "Acceleration of stochastic approximation by averaging", 1992).
#pragma once

#include <cstddef>
#include <cstdint>

#include "leashed/base/choice.h"
#include "leashed/update/coefficients.h"

namespace leashed {

struct AveragedSgd {
  static constexpr const char* kName = "averaged_sgd";
  static constexpr std::size_t kStates = 1;  // a
  static constexpr std::size_t kSquares = 0;
  static constexpr bool kKeepsUntouched = false;

  explicit AveragedSgd(const Choice& c) : begin(c["begin"]) {}
  float initial_state() const { return 0; }

  void coefficients(double, std::uint64_t updates, Coefficients& c) const {
    const double averaged = static_cast<double>(updates) - begin;
    c.add1 = averaged > 0 ? static_cast<float>(1 / (averaged + 1)) : 1;
  }

  template <class Math, class V>
  [[gnu::always_inline]] static inline V step(V theta, V g, V* state, const Coefficients& c) {
    const V next = theta - c.lr * g;
    state[0] = state[0] + c.add1 * (next - state[0]);
    return next;
  }

  double begin;
};

}  // namespace leashed
