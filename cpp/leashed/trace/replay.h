// A recorded training (trace.h), made again by one thread.
//
// Each worker's next published gradient is computed as soon as the version that it was computed on
// is there, and kept until its turn, which is that of its t. So no version is kept: a worker reads
// only after its own last update, as it did then. Bit for bit where a read was of one version:
// Sequential, Synchronous, Locked, Leashed. Under Hogwild a read saw parts of several; replayed is
// the training in which each saw exactly the updates counted before it. Updates in place are made
// in place again.
//
// Rows of tables are read and pushed where updates have an order that rows have too: by one worker,
// or in lockstep, in the order of the workers.
#pragma once

#include "leashed/discipline/context.h"
#include "leashed/model/gradient_source.h"
#include "leashed/trace/replayed.h"

namespace leashed {

// `context` is what the recorded training began with, and `lockstep` its discipline's. Throws Error
// where the trace does not go to `until`, before anything is computed; or the records contradict
// each other, or lack an update before the end that the trace has.
Replayed replay(const GradientSource& source, const DatasetView& data,
                const DisciplineContext& context, bool lockstep, const Trace& trace,
                const ReplayOptions& options);

}  // namespace leashed
