#include "leashed/engine/run.h"

#include <algorithm>

namespace leashed {
namespace {

// Running means of losses are of so many rows of all workers together.
constexpr double kHeardRows = 512;

}  // namespace

Run::Run(const GradientSource& source, const DatasetView& data, Observed& observed,
         const StopRules& until, std::size_t workers, std::size_t batch_size, RowStore* rows,
         Counting::Updates updates)
    : source(source),
      data(data),
      observed(observed),
      until(until),
      workers(workers),
      batch_size(batch_size),
      rows(rows),
      counting(workers, std::min(1.0, static_cast<double>(batch_size * workers) / kHeardRows),
               updates),
      observers(workers) {
  if (rows) rows->follow(stop.flag());
}

void Run::fail(std::exception_ptr error) {
  {
    const std::lock_guard lock(failure_mutex);
    if (!failure) failure = error;
  }
  stop.stop(StopReason::error);
}

void Run::leave(std::size_t worker) {
  observers.leave(worker, [this](std::exception_ptr error) { fail(error); });
}

void Run::observe(ProgressMetrics* asked, const std::vector<StepObserver*>& others) {
  metrics = asked;
  if (metrics) observers.add(*metrics);
  observers.add(counting);
  for (StepObserver* const one : others) observers.add(*one);
}

}  // namespace leashed
