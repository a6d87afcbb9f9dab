// What checkpoints have of a mode beside its server and its workers' own models, whether it was
// carried out on threads (policy_threads.h) or by a policy server (cluster/policy_service.h): a run
// on threads goes on from those of both.
#pragma once

#include <cstdint>

#include "leashed/base/archive.h"
#include "leashed/policy/server_machine.h"

namespace leashed {

inline constexpr std::uint64_t kModeLayout = 1;

// A wake, or a command, that the mode is to be told.
struct DueEvent {
  std::int64_t ns = 0;
  modes::Event event{modes::Event::Kind::wake};

  void visit(Archive& archive) {
    archive(ns, event.kind, event.argument);
    const bool is_command = event.kind == modes::Event::Kind::command;
    archive.require(ns >= 0 && (is_command || event.kind == modes::Event::Kind::wake));
  }
};

// Of a worker, in the order of nodes; which lease it has the server knows.
struct WorkerState {
  std::uint32_t n = 0, c = 0;  // as Grant has them
  std::uint64_t t = 0;
  bool taken = false;      // by its own model
  std::uint32_t done = 0;  // local steps since

  void visit(Archive& archive) { archive(n, c, t, taken, done); }
};

}  // namespace leashed
