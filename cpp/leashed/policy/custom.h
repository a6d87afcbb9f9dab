// A synchroniser from outside: what is done with theta when the others' values have come is a
// function of whoever drives it.
#pragma once

#include "leashed/base/choice.h"
#include "leashed/policy/machine.h"

namespace leashed {

template <bool Servers>
struct Custom {
  static constexpr const char* kName = Servers ? "custom_servers" : "custom_mean";
  static constexpr bool kServers = Servers;
  static constexpr std::size_t kStates = 0;

  explicit Custom(const Choice& c) : alpha(Servers ? static_cast<float>(c["alpha"]) : 0) {}

  void on(const Event& event, Time, Out& out) {
    if (event.kind == Event::Kind::idle) {
      out.add(Servers ? Action::Kind::exchange : Action::Kind::all_reduce).alpha = alpha;
      return;
    }
    if (event.kind == Event::Kind::summed) {
      out.add(Action::Kind::average).members = event.members;
    }
    out.add(Action::Kind::custom);
  }

  float alpha;  // by which the holders' values move towards theta
};

}  // namespace leashed
