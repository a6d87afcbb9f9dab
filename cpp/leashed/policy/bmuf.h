// BMUF (shadowsync, Algorithm 4): the mean of all θ less w^global is a descent direction, by which
// w^global moves with step size η and, where asked for, block momentum or Nesterov's (Chen and Huo,
// "Scalable training of deep learning machines by incremental block training", 2016); then
// θ ← (1 − α) θ + α w^global, or by differences as MA (policy/ma.h).
#pragma once

#include "leashed/base/choice.h"
#include "leashed/policy/machine.h"

namespace leashed {

struct Bmuf {
  static constexpr const char* kName = "bmuf";
  static constexpr bool kServers = false;
  static constexpr std::size_t kStates = 2;  // global, velocity

  explicit Bmuf(const Choice& c)
      : alpha(static_cast<float>(c["alpha"])),
        eta(static_cast<float>(c["eta"])),
        momentum(static_cast<float>(c["momentum"])),
        nesterov(c["nesterov"] != 0),
        difference(c.value("difference", 0) != 0) {}

  void on(const Event& event, Time, Out& out) {
    if (event.kind == Event::Kind::idle) {
      out.add(Action::Kind::all_reduce).difference = difference;
      return;
    }
    out.add(Action::Kind::average).members = event.members;
    Action& action = out.add(Action::Kind::advance);
    action.eta = eta;
    action.momentum = momentum;
    action.nesterov = nesterov;
    Action& mix = out.add(Action::Kind::mix);
    mix.alpha = alpha;
    mix.difference = difference;
  }

  float alpha, eta, momentum;
  bool nesterov, difference;
};

}  // namespace leashed
