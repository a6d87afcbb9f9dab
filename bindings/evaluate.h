// What may last, from Python: without the GIL, and Ctrl-C ends it.
#pragma once

#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "arrays.h"
#include "leashed/data/rows_in_order.h"
#include "leashed/engine/evaluator.h"
#include "signals.h"

namespace leashed {

// Calls work(first, count) for parts of so many rows.
template <class Work>
void in_parts(std::size_t rows, Work work) {
  constexpr std::size_t kPart = 256;  // as leashed.h promises of the batches of evaluations
  SignalWatch watch;
  for (std::size_t first = 0; first < rows; first += kPart) {
    watch();
    work(first, std::min(kPart, rows - first));
  }
}

// Over all rows, on as many threads as that is worth, at most so many; their logits go to `logits`,
// where it is not null.
inline Evaluation evaluate_all(const GradientSource& source, const FloatArray& theta,
                               const DatasetView& data, std::optional<std::size_t> threads = {},
                               RowStore* rows = nullptr, float* logits = nullptr) {
  const py::gil_scoped_release release;
  Evaluator evaluator(source, SignalWatch(), rows);
  const std::size_t most = threads.value_or(std::numeric_limits<std::size_t>::max());
  return evaluator(theta.data(), data, most, 1, logits).value();
}

// Mean loss and accuracy.
inline std::pair<double, double> means(const GradientSource& source, const FloatArray& theta,
                                       const DatasetView& data,
                                       std::optional<std::size_t> threads = {}) {
  require_length(theta, source.dimension(), "theta");
  const Evaluation sum = evaluate_all(source, theta, data, threads);
  const auto n = static_cast<double>(sum.rows);
  return {sum.loss_sum / n, static_cast<double>(sum.correct) / n};
}

// (loss, gradient) of the mean loss over all rows as one batch; for tests and for loops of the
// user's own.
inline std::pair<float, py::array_t<float>> gradient_of(const GradientSource& source,
                                                        const FloatArray& theta,
                                                        const DatasetView& data) {
  require_length(theta, source.dimension(), "theta");
  std::vector<float> result(source.dimension());
  float loss = 0;
  {
    const py::gil_scoped_release release;
    Batch all;
    fill_in_order(data, 0, data.rows, all);
    const std::atomic<bool> never{false};
    const auto workspace = source.make_workspace();
    loss = source.gradient(theta.data(), all.view, result.data(), *workspace, never);
  }
  return {loss, to_array(std::move(result))};
}

}  // namespace leashed
