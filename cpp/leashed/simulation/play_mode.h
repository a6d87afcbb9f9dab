// A training in virtual time by a mode: workers that pull from a server and push to it, or meet
// each other, as a machine says (policy/server_machine.h). Gradients are computed by the model's
// own kernels when their push falls due, on the version that was pulled; what they take is drawn.
#pragma once

#include "leashed/discipline/discipline.h"
#include "leashed/server/parameter_server.h"
#include "leashed/simulation/simulate.h"

namespace leashed {

struct ModeResult {
  SimulationResult simulation;
  ModeCounts counts;
};

// `options.update` is what the server takes for each push that it carries out, one after the other;
// `options.copy` what a transfer takes, each way, where there is no network. A push is lost with
// its worker until the server has carried it out.
ModeResult simulate_mode(const GradientSource& source, const DatasetView& data,
                         const DatasetView* validation, const modes::ServerPolicy& machine,
                         const DisciplineContext& context, const SimulationOptions& options,
                         const TrainCallbacks& callbacks);

}  // namespace leashed
