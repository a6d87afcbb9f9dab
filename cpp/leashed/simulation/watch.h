// Who watches a simulation: evaluates the parameters, asks the stop rules, looks at signals.
#pragma once

#include <cstdint>
#include <vector>

#include "leashed/engine/callbacks.h"
#include "leashed/engine/counting.h"
#include "leashed/engine/evaluator.h"
#include "leashed/engine/result.h"

namespace leashed {

class Watch {
 public:
  // rows: of the tables that the source reads, for who evaluates. What workers do by a mode
  // is counted of all together.
  Watch(const GradientSource& source, const DatasetView& data, const DatasetView* validation,
        const StopRules& until, const TrainCallbacks& callbacks, RowStore* rows,
        std::size_t workers, Counting::Updates updates, const std::vector<StepObserver*>& others)
      : counting(updates == Counting::Updates::by_server ? 1 : workers, 1, updates),
        observers(workers),
        source_(source),
        data_(data),
        validation_(validation),
        until_(until),
        callbacks_(callbacks),
        evaluator_(
            source, [this] { return !looked(); }, rows) {
    observers.add(counting);
    for (StepObserver* const one : others) observers.add(*one);
  }

  StopFlag stop;
  Counting counting;
  Observers observers;

  // Signals, now and then; true: to stop. Throws what the callback throws.
  bool looked();
  // Of theta at this moment, of which `e` has seconds, updates and what else is counted.
  void evaluate(const float* theta, Evaluated e);
  bool evaluated_at(double seconds, std::uint64_t updates) const {
    return !evaluations_.empty() && evaluations_.back().seconds == seconds &&
           evaluations_.back().updates == updates;
  }
  bool interrupted() const { return interrupted_; }
  // Fills in how the run ended, after `result` has its updates.
  void end(TrainResult& result, std::uint64_t batches);

 private:
  double initial_loss() const { return evaluations_.front().loss; }
  bool measure(Evaluated& e, const float* theta);
  void judge(const Evaluated& e);

  const GradientSource& source_;
  const DatasetView& data_;
  const DatasetView* const validation_;
  const StopRules& until_;
  const TrainCallbacks& callbacks_;
  Evaluator evaluator_;
  std::vector<Evaluated> evaluations_;
  double next_look_ = 0;
  bool interrupted_ = false, converged_ = false, crashed_ = false;
};

}  // namespace leashed
