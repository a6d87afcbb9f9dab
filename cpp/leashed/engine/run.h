// What the monitor has to know of a training, whoever trains: what is trained on what, until when,
// and how it is stopped.
#pragma once

#include <cstddef>
#include <exception>
#include <mutex>
#include <vector>

#include "leashed/data/dataset_view.h"
#include "leashed/discipline/observed.h"
#include "leashed/engine/counting.h"
#include "leashed/engine/pause.h"
#include "leashed/engine/progress_metrics.h"
#include "leashed/engine/stop.h"
#include "leashed/model/gradient_source.h"
#include "leashed/row_store/row_store.h"

namespace leashed {

struct Run {
  Run(const GradientSource& source, const DatasetView& data, Observed& observed,
      const StopRules& until, std::size_t workers, std::size_t batch_size, RowStore* rows,
      Counting::Updates updates = Counting::Updates::by_disciplines);
  Run(const Run&) = delete;

  // Whether the rows are a stream's: nothing is known of them but what the workers find.
  bool streams() const { return data.rows == 0; }
  // Keeps the first exception of a worker and stops them all.
  void fail(std::exception_ptr error);
  // The worker takes part no more: its observers hear of it.
  void leave(std::size_t worker);
  // Who hears of its steps from now on: what is counted, and who asks for it.
  void observe(ProgressMetrics* metrics, const std::vector<StepObserver*>& others);

  const GradientSource& source;
  const DatasetView data;
  Observed& observed;  // the parameters
  const StopRules until;
  const std::size_t workers;
  const std::size_t batch_size;
  RowStore* const rows;  // of the tables that the source reads; null: of none

  Counting counting;
  Observers observers;
  ProgressMetrics* metrics = nullptr;  // among them; null: none

  Pause* pause = nullptr;  // of the workers, for checkpoints; null: nobody waits

  StopFlag stop;

  std::mutex failure_mutex;
  std::exception_ptr failure;
};

}  // namespace leashed
