// A training in virtual time by a mode: workers that pull from a server and push to it, or meet
// each other, as a machine says (policy/server_machine.h). Gradients are computed by the model's
// own kernels when their push falls due, on the version that was pulled; what they take is drawn.
#pragma once

#include "leashed/discipline/discipline.h"
#include "leashed/policy/server_policy.h"
#include "leashed/simulation/simulate.h"

namespace leashed {

// What a mode decided, beside the training's result.
struct ModeCounts {
  std::uint64_t late = 0, stale = 0, straggler = 0;  // dropped, in examples
  std::uint64_t applied = 0;                         // examples, of pushes that were summed
  std::uint64_t exchanges = 0, meetings = 0;
  std::vector<std::uint64_t> worker_examples;  // pushed by each
};

struct ModeResult {
  SimulationResult simulation;
  ModeCounts counts;
};

// `options.update` is what the server takes for each push that it carries out, one after the other;
// `options.copy` what a transfer takes, each way. `context.workers` workers are there from the
// start.
ModeResult simulate_mode(const GradientSource& source, const DatasetView& data,
                         const DatasetView* validation, modes::ServerPolicy& machine,
                         const DisciplineContext& context, const SimulationOptions& options,
                         const TrainCallbacks& callbacks);

}  // namespace leashed
