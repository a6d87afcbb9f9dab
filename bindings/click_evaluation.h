// What models say of rows, of clicks or of numbers alone: tables are only read, and no id gets a
// row.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>

#include "clicks.h"
#include "data.h"
#include "evaluate.h"
#include "leashed/base/team.h"
#include "leashed/row_store/local_rows.h"

namespace leashed {

using Tables = std::vector<std::shared_ptr<Table>>;

// The rows of its tables that a source reads; none where it reads none. One reader is the calling
// thread.
inline std::unique_ptr<LocalRows> rows_of(const GradientSource& source, const Tables& tables,
                                          std::size_t readers) {
  if (source.features_of_tables().empty()) return nullptr;
  return std::make_unique<LocalRows>(tables, source.features_of_tables(), 0, readers, false, 0,
                                     readers == 1);
}

inline Evaluation evaluate_rows(const GradientSource& source, const FloatArray& theta,
                                const DatasetView& data, const Tables& tables,
                                std::optional<std::size_t> threads = {}, float* logits = nullptr) {
  require_length(theta, source.dimension(), "theta");
  const std::size_t readers =
      std::min({threads.value_or(processors()), processors(), LocalRows::kReaders});
  const std::unique_ptr<LocalRows> rows = rows_of(source, tables, readers);
  return evaluate_all(source, theta, data, readers, rows.get(), logits);
}

// What predict(batch, out, workspace) writes for each row, [rows, outputs].
template <class Predict>
py::array_t<float> predict_rows(const GradientSource& source, const FloatArray& theta,
                                const DatasetView& data, const Tables& tables, std::size_t outputs,
                                Predict predict) {
  require_length(theta, source.dimension(), "theta");
  const std::unique_ptr<LocalRows> rows = rows_of(source, tables, 1);
  py::array_t<float> predictions({data.rows, outputs});
  float* out = predictions.mutable_data();
  const py::gil_scoped_release release;
  const auto workspace = source.make_workspace();
  const auto found = rows ? rows->make_batch() : nullptr;
  Batch batch;
  in_parts(data.rows, [&](std::size_t first, std::size_t count) {
    fill_in_order(data, first, count, batch);
    if (rows) rows->read(0, batch.view, *found);
    predict(batch.view, out + first * outputs, *workspace);
  });
  return predictions;
}

}  // namespace leashed
