// A training put together from choices by name, and its result brought back to the model's own
// order of parameters: sparse rows are trained on with their columns, and with them theta, in
// another (sparse/ordered_rows.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "leashed/base/choice.h"
#include "leashed/engine/trainer.h"
#include "leashed/modes/policy_threads.h"
#include "leashed/sparse/ordered_rows.h"
#include "leashed/trace/replayed.h"

namespace leashed {

class Table;

// A trace to write, and what it is to begin with: trace_writer.h.
struct Recording {
  std::string path, header;
  std::vector<float> start;
};

struct Assembly {
  const GradientSource& source;
  const float* theta;  // to begin with, in the model's order
  DatasetView data;
  std::optional<DatasetView> validation;
  // Of sparse data, the copy that is trained on; data's targets are in the rows' own order.
  std::shared_ptr<const OrderedRows> ordered;
  Choice discipline, rule, staleness;  // a mode in place of the discipline where it says so
  // Those that the source reads, in its order.
  std::vector<std::shared_ptr<Table>> tables = {};
  RowStore* rows = nullptr;  // in place of these: their rows are elsewhere
  std::optional<Recording> recording = {};
  const StreamedData* stream = nullptr;  // of rows that are not in memory, in place of data
  std::vector<Choice> observers = {};    // who look on
};

// Checkpoints, given and taken, are in the model's order. Null: the training begins here.
TrainResult train(const Assembly& parts, const TrainOptions& options,
                  const TrainCallbacks& callbacks, const Checkpoint* from);

// By a mode. The listener is the recording's, where there is one; `from` as of train().
ModeTrainResult train_mode(const Assembly& parts, ModeTrainOptions options,
                           const TrainCallbacks& callbacks, const Checkpoint* from);

// What a trace tells of the training that was put together from these parts: vectors in the model's
// order.
Replayed replay(const Assembly& parts, const Trace& trace, const ReplayOptions& options,
                const Checkpoint* from);
Replayed replay_mode(const Assembly& parts, const Trace& trace, const ReplayOptions& options);

}  // namespace leashed
