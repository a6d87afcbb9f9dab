// What models say of rows of clicks: tables are read alone, and no id gets a row.
#pragma once

#include <algorithm>
#include <optional>

#include "clicks.h"
#include "data.h"
#include "evaluate.h"
#include "leashed/base/team.h"
#include "leashed/table/local_rows.h"

namespace leashed {

using Tables = std::vector<std::shared_ptr<Table>>;

inline Evaluation evaluate_clicks(const GradientSource& source, const FloatArray& theta,
                                  const DatasetView& data, const Tables& tables,
                                  std::optional<std::size_t> threads = {}) {
  require_length(theta, source.dimension(), "theta");
  const std::size_t readers =
      std::min({threads.value_or(processors()), processors(), LocalRows::kReaders});
  LocalRows rows(tables, source.features_of_tables(), 0, readers, false);
  return evaluate_all(source, theta, data, readers, &rows);
}

// What predict(batch, out, workspace) writes for each row, [rows, outputs].
template <class Predict>
py::array_t<float> predict_clicks(const GradientSource& source, const FloatArray& theta,
                                  const PyClickRows& x, const Tables& tables, std::size_t outputs,
                                  Predict predict) {
  require_length(theta, source.dimension(), "theta");
  const DatasetView data{x.x(), {}, x.rows(), x.numbers(), {}, x.ids()};
  LocalRows rows(tables, source.features_of_tables(), 0, 1, false);
  py::array_t<float> predictions({x.rows(), outputs});
  float* out = predictions.mutable_data();
  const py::gil_scoped_release release;
  const auto workspace = source.make_workspace();
  const auto found = rows.make_batch();
  Batch batch;
  in_parts(x.rows(), [&](std::size_t first, std::size_t count) {
    fill_in_order(data, first, count, batch);
    rows.read(0, batch.view, *found);
    predict(batch.view, out + first * outputs, *workspace);
  });
  rows.release(0);
  return predictions;
}

}  // namespace leashed
