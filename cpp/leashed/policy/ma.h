// MA (shadowsync, Algorithm 3): w^global ← AllReduce(θ) / n, then θ ← (1 − α) θ + α w^global; by
// differences θ ← θ + α (w^global − θ as it went into the sum).
#pragma once

#include "leashed/base/choice.h"
#include "leashed/policy/machine.h"

namespace leashed {

struct Ma {
  static constexpr const char* kName = "ma";
  static constexpr bool kServers = false;
  static constexpr std::size_t kStates = 0;

  explicit Ma(const Choice& c)
      : alpha(static_cast<float>(c["alpha"])), difference(c.value("difference", 0) != 0) {}

  void on(const Event& event, Time, Out& out) {
    if (event.kind == Event::Kind::idle) {
      out.add(Action::Kind::all_reduce).difference = difference;
    } else {
      out.add(Action::Kind::average).members = event.members;
      Action& action = out.add(Action::Kind::mix);
      action.alpha = alpha;
      action.difference = difference;
    }
  }

  float alpha;
  bool difference;
};

}  // namespace leashed
