// A training put together from choices by name, and its result brought back to the model's own
// order of parameters: sparse rows are trained on with their columns, and with them theta, in
// another (sparse/ordered_rows.h).
#pragma once

#include <memory>
#include <optional>

#include "leashed/base/choice.h"
#include "leashed/engine/trainer.h"
#include "leashed/sparse/ordered_rows.h"
#include "leashed/table/table.h"

namespace leashed {

struct Assembly {
  const GradientSource& source;
  const float* theta;  // to begin with, in the model's order
  DatasetView data;
  std::optional<DatasetView> validation;
  // Of sparse data, the copy that is trained on; data's targets are in the rows' own order.
  std::shared_ptr<const OrderedRows> ordered;
  Choice discipline, rule, staleness;
  // Those that the source reads, in its order.
  std::vector<std::shared_ptr<Table>> tables = {};
};

// Checkpoints, given and taken, are in the model's order. Null: the training begins here.
TrainResult train(const Assembly& parts, const TrainOptions& options,
                  const TrainCallbacks& callbacks, const Checkpoint* from);

}  // namespace leashed
