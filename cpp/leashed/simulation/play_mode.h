// A training in virtual time by a mode: workers that pull from a server and push to it, or meet
// each other, as a machine says (policy/server_machine.h). Gradients are computed by the model's
// own kernels when their push falls due, on the version that was pulled; what they take is drawn.
#pragma once

#include "leashed/discipline/context.h"
#include "leashed/server/parameter_server.h"
#include "leashed/server/sharding.h"
#include "leashed/simulation/simulate.h"

namespace leashed {

// What one of several servers, or the only one, has done.
struct ShardResult {
  std::vector<ShardSpan> spans;
  std::uint64_t updates;
  std::vector<std::uint64_t> staleness;  // of its updates, counted in them
  // What it has decided, in examples; and of those that the first has had what it has not: lost
  // with their workers on the way, or under way where the run has ended before.
  std::uint64_t applied, stale, straggler, late, missing;
};

struct ModeResult {
  SimulationResult simulation;  // its updates are those that all shards have made
  ModeCounts counts;            // of the first shard, whose leases are the examples'
  std::vector<ShardResult> shards;
  std::vector<float> models;  // [workers][dimension], of a mode with own models
};

// `options.update` is what the server takes for each push that it carries out, one after the other;
// where there are several, each takes its share of it, by the parameters that it holds.
// `options.copy` what a transfer takes, each way, where there is no network. A push is lost with
// its worker until the server has carried it out; of several servers, until the first has, and of
// what is on the way to the others then their parts.
ModeResult simulate_mode(const GradientSource& source, const DatasetView& data,
                         const DatasetView* validation, const Choice& mode,
                         const Sharding& sharding, const DisciplineContext& context,
                         const SimulationOptions& options, const TrainCallbacks& callbacks);

}  // namespace leashed
