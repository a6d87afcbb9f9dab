// SGD: θ ← θ − η ĝ (leashed-sgd, eq. 1).
#pragma once

#include <cstddef>
#include <cstdint>

#include "leashed/base/choice.h"
#include "leashed/update/coefficients.h"

namespace leashed {

struct Sgd {
  static constexpr const char* kName = "sgd";
  static constexpr std::size_t kStates = 0;
  static constexpr std::size_t kSquares = 0;
  static constexpr bool kKeepsUntouched = true;

  explicit Sgd(const Choice&) {}
  float initial_state() const { return 0; }
  void coefficients(double, std::uint64_t, Coefficients&) const {}

  template <class Math, class V>
  [[gnu::always_inline]] static inline V step(V theta, V g, V*, const Coefficients& c) {
    return theta - c.lr * g;
  }
};

}  // namespace leashed
