// What checkpoints have of a policy server beside its parameters and its rule's state, whether it
// is the only one, the first of several, or behind that.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "leashed/base/archive.h"
#include "leashed/engine/checkpoint.h"
#include "leashed/modes/mode_state.h"
#include "leashed/server/parameter_server.h"
#include "leashed/staleness/policy.h"
#include "leashed/update/rule.h"

namespace leashed {

// What a server goes on from: what another one has taken, of `context.workers` nodes, whose
// parameters and states are in its context; so many lanes may come now.
struct BegunMode {
  const Archived& mode;
  std::size_t lanes;
  // Of several servers that decide by themselves: it is the first's, who leases the data, and not
  // this server's own.
  bool leads = false;
  // Of one that is started again in its own run, the lanes and counts of then, as served() of it
  // has told; null: it is another run that goes on.
  const Archived* served = nullptr;
  // Of one that has a journal, and is started again: the first line of it that is not in this.
  std::uint64_t line = 0;
};

// What a server has.
struct TakenMode {
  Checkpoint state;
  // Of several servers, what tells whether theirs go together. The words of the mode that are of
  // rows that are held, one slot's behind another's.
  std::size_t rows_begin = 0, rows_end = 0;
  // By slot the number of the batch whose gradient is held whole, and one more; 0: none is.
  std::vector<std::uint64_t> held;
  // Where they decide by themselves, of the first which batches are not done, by number with their
  // examples; of another which it has had, as first and last number.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> unfinished, had;
};
// With the mode's time, in nanoseconds, and what it is still to be told. Workers' own models begin
// anew.
TakenMode take_mode(std::int64_t ns, std::vector<DueEvent> due, ParameterServer& server,
                    const Rule& rule, const StalenessPolicy& policy);
// A new server has what `begun` is, the mode's time among it. Returns what it is still to be told.
std::vector<DueEvent> begin_mode(const BegunMode& begun, ParameterServer& server, Sink& sink,
                                 const Rule& rule, const StalenessPolicy& policy, std::int64_t& ns);
// Nodes for which no lane may come have left.
void leave_beyond(std::size_t lanes, ParameterServer& server, Sink& sink, std::int64_t ns);

}  // namespace leashed
