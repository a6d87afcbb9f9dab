// The modes of training by name.
#pragma once

#include <variant>

#include "leashed/base/choice.h"
#include "leashed/policy/automatic.h"
#include "leashed/policy/bsp.h"
#include "leashed/policy/dssp.h"
#include "leashed/policy/gba.h"
#include "leashed/policy/hop_bw.h"
#include "leashed/policy/peers.h"
#include "leashed/policy/server_easgd.h"
#include "leashed/policy/shat.h"
#include "leashed/policy/ssp.h"

namespace leashed::modes {

using ServerPolicy = std::variant<Bsp,        // and ASP
                                  Ssp,        // and Hop-BS
                                  Dssp,       //
                                  HopBw,      // and Sync, local SGD
                                  Easgd,      //
                                  Gba,        // switching to Sync and back
                                  Automatic,  // which switches itself
                                  Shat,       // and SHAT-root and ENSEMBLE
                                  Peers>;     // SwarmSGD, GoSGD, AD-PSGD, D-PSGD, Prague

// Throws Error where there is none of that name, or an argument is wrong. Arguments of all:
//
//   workers    nodes 0..workers−1 are there from the start
//   batch      examples of a lease
//   examples   of all leases, 0: endless
//   term_ns    until a lease goes to another, 0 (default): never
//   follows    1: of one of several servers, whose data another leases (coordinated.h)
//
// and of those that sum gradients of several pushes
//
//   divide_by_containing   1: a row's sum is divided by the batches that contain its id
ServerPolicy make_server_policy(const Choice& choice);

inline void on(ServerPolicy& machine, const Event& event, Time now, Out& out) {
  std::visit([&](auto& m) { m.on(event, now, out); }, machine);
}
inline const WorkerRule& rule(const ServerPolicy& machine) {
  return std::visit([](const auto& m) -> const WorkerRule& { return m.rule(); }, machine);
}
inline bool divides_by_containing(const ServerPolicy& machine) {
  return std::visit([](const auto& m) { return m.divides_by_containing(); }, machine);
}

}  // namespace leashed::modes
