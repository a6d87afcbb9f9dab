// A recorded training by a mode (mode_trace.h), made again by one thread: what the server heard is
// told to another with the times of then, which answers the same. So who waited for whom, when a
// mode switched and what was dropped come out as they did, and the parameters to the same bits.
//
// A gradient is computed when its push comes, on the version that its worker was granted, which is
// pinned until then; a step on a model that others look at when the record of the step comes, on a
// copy of what the model was when it began. Rows of tables are found and copied with the grant, or
// where the records say so (ReplayOptions::looks_up), and updated with the push, as then.
//
// It is the same for the record of a policy server (cluster/policy_service.h), whose workers were
// other processes: what one of them had made of a lease that it lost is made here too, and who came
// anew begins anew. Values that were not finite are not used here either. Rows are held from their
// look-up until the push, another grant or the node's leaving, as there: what a table evicts
// depends on it.
#pragma once

#include <memory>
#include <vector>

#include "leashed/policy/server_policy.h"
#include "leashed/trace/replayed.h"

namespace leashed {

class GradientSource;
struct DatasetView;
struct DisciplineContext;
class Table;

// `machine`, `context` and the tables that the source reads are what the recorded training began
// with; the context's readers are three more than its. Throws Error where the trace does not go to
// `until`, or its records are not what such a machine can have heard, before anything is computed
// (where a policy leaves out all of an update, after it); or they lack an update before the end
// that the trace has.
Replayed replay(const GradientSource& source, const DatasetView& data,
                const modes::ServerPolicy& machine, const DisciplineContext& context,
                const std::vector<std::shared_ptr<Table>>& tables, const Trace& trace,
                const ReplayOptions& options);

}  // namespace leashed
