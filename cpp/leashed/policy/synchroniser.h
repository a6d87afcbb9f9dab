// How trainers' replicas are kept in sync, as values: one line here for each.
#pragma once

#include <variant>

#include "leashed/policy/bmuf.h"
#include "leashed/policy/custom.h"
#include "leashed/policy/easgd.h"
#include "leashed/policy/ma.h"

namespace leashed {

using Synchroniser = std::variant<Easgd,         //
                                  Ma,            //
                                  Bmuf,          //
                                  Custom<true>,  //
                                  Custom<false>>;

// Throws Error where there is none of that name.
Synchroniser make_synchroniser(const Choice& choice);

inline void on(Synchroniser& machine, const Event& event, Time now, Out& out) {
  std::visit([&](auto& m) { m.on(event, now, out); }, machine);
}
// Whether it exchanges with servers; else all members reduce.
inline bool uses_servers(const Synchroniser& machine) {
  return std::visit([](const auto& m) { return m.kServers; }, machine);
}
// Vectors that all members carry on alike, and that who comes later is given.
inline std::size_t shared_states(const Synchroniser& machine) {
  return std::visit([](const auto& m) { return m.kStates; }, machine);
}

}  // namespace leashed
