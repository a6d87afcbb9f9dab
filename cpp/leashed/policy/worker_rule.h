// What a worker does between a grant and its push, and with the next grant, as data: one loop
// interprets it for every mode. The first grant is taken whole, whoever mixes later.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace leashed::modes {

// w ← (1 − α) w + α w̃ (shat, eq. 3): the weight of what was granted.
struct Mixing {
  enum class Kind : std::uint8_t {
    fixed,      // α
    logarithm,  // SHAT, eq. 4: 1 − s / log n with s = n / c
    root,       // SHAT-root: 1 − s / √n
  } kind = Kind::fixed;
  double alpha = 1;  // fixed
  double base = 0;   // of the logarithm; 0: natural

  // n nodes, c updates by others since this one's last. Between 0 and 1; alone 1; with no update by
  // others 0.
  double weight(std::uint32_t n, std::uint32_t c) const {
    if (kind == Kind::fixed) return alpha;
    if (n <= 1) return 1;
    if (c == 0) return 0;
    const double size = n;
    const double scale = kind == Kind::root ? std::sqrt(size)
                         : base > 0         ? std::log(size) / std::log(base)
                                            : std::log(size);
    return std::clamp(1 - size / c / scale, 0.0, 1.0);
  }
};

struct WorkerRule {
  enum class Model : std::uint8_t {
    pulled,
    own
  } model = Model::pulled;        // gradients are taken on it
  std::uint32_t local_steps = 1;  // on the own model, between two messages
  enum class Sends : std::uint8_t { gradient, model } sends = Sends::gradient;
  bool steps_own = false;  // w ← rule(w, g) as well
  enum class Takes : std::uint8_t { replace, mix } takes = Takes::replace;
  Mixing mixing = {};
  bool reduces = false;  // gradients are summed by the workers, over a ring: no server takes them
};

inline WorkerRule pulled_gradients() { return {}; }

inline WorkerRule reduced_gradients() { return {.reduces = true}; }

// SHAT and its relatives: w ← rule(w, g), g to the server, w ← (1 − α) w + α w̃.
inline WorkerRule own_gradients(Mixing mixing) {
  return {.model = WorkerRule::Model::own,
          .steps_own = true,
          .takes = WorkerRule::Takes::mix,
          .mixing = mixing};
}

inline WorkerRule own_models(std::uint32_t local_steps,
                             WorkerRule::Takes takes = WorkerRule::Takes::replace,
                             Mixing mixing = {}) {
  return {.model = WorkerRule::Model::own,
          .local_steps = local_steps,
          .sends = WorkerRule::Sends::model,
          .steps_own = true,
          .takes = takes,
          .mixing = mixing};
}

}  // namespace leashed::modes
