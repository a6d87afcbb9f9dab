// The record of a training by a mode (modes/mode_trace.h), on threads or over sockets, in virtual
// time: a server of virtual time is told what that one heard, at the moments of then, and a worker
// computes when its push was recorded. So it decides what that one did, evaluations cost nothing,
// and the parameters come to the same bits.
#pragma once

#include "leashed/simulation/play_mode.h"

namespace leashed {

class Trace;

// As simulate_mode, with as many workers as then; `options` say nothing of durations, links and
// members, and `sharding` what each of as many servers had. looks_up: as of ReplayOptions. Throws
// Error where others look at workers' own models, or the records are not what such a server can
// have heard.
ModeResult simulate_record(const GradientSource& source, const DatasetView& data,
                           const DatasetView* validation, const Choice& mode,
                           const Sharding& sharding, const Trace& trace, bool looks_up,
                           const DisciplineContext& context, const SimulationOptions& options,
                           const TrainCallbacks& callbacks);

}  // namespace leashed
