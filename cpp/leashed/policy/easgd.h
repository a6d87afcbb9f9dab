// EASGD (shadowsync, Algorithm 2): w^PS ← (1 − α) w^PS + α θ, then θ ← (1 − α) θ + α w^PS with the
// new w^PS. Symmetric, the classical one (Zhang, Choromanska and LeCun, "Deep learning with elastic
// averaging SGD", 2015): with the old one, so that both move by the same difference.
#pragma once

#include "leashed/base/choice.h"
#include "leashed/policy/machine.h"

namespace leashed {

struct Easgd {
  static constexpr const char* kName = "easgd";
  static constexpr bool kServers = true;  // who holds w^PS
  static constexpr std::size_t kStates = 0;

  explicit Easgd(const Choice& c)
      : alpha(static_cast<float>(c["alpha"])), symmetric(c["symmetric"] != 0) {}

  void on(const Event& event, Time, Out& out) {
    if (event.kind == Event::Kind::idle) {
      Action& action = out.add(Action::Kind::exchange);
      action.alpha = alpha;
      action.old_reply = symmetric;
    } else {
      out.add(Action::Kind::mix).alpha = alpha;
    }
  }

  float alpha;
  bool symmetric;
};

}  // namespace leashed
