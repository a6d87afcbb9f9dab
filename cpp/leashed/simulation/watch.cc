#include "leashed/simulation/watch.h"

#include <cmath>
#include <utility>

#include "leashed/base/clock.h"
#include "leashed/base/team.h"
#include "leashed/engine/memory.h"
#include "leashed/engine/monitor.h"
#include "leashed/engine/stream_mean.h"

namespace leashed {
namespace {

constexpr double kLook = 0.02;  // real seconds between two looks at signals

}  // namespace

bool Watch::looked() {
  if (interrupted_ || now() < next_look_) return interrupted_;
  interrupted_ = callbacks_.interrupted && callbacks_.interrupted();
  if (interrupted_) stop.stop(StopReason::interrupted);
  next_look_ = now() + kLook;
  return interrupted_;
}

void Watch::evaluate(const float* theta, Evaluated e) {
  if (!measure(e, theta)) return stop.stop(StopReason::interrupted);
  e.memory_bytes = resident_bytes();
  e.observed = observers.found();
  evaluations_.push_back(std::move(e));
  judge(evaluations_.back());
  if (callbacks_.progress) callbacks_.progress(evaluations_.back(), initial_loss());
}

// Of a stream, whose rows are gone, the loss is the one that was found meanwhile (as History has
// it).
bool Watch::measure(Evaluated& e, const float* theta) {
  const std::size_t threads = processors();
  const auto judged = [&](const DatasetView* set, std::size_t every = 1) {
    return set && set->rows > 0 ? evaluator_(theta, *set, threads, every)
                                : std::optional(Evaluation());
  };
  const auto train = judged(&data_, Evaluator::every(data_, until_.rows));
  if (!train) return false;
  const auto validate = judged(validation_);
  if (!validate) return false;
  const auto share = [&](const Evaluation& of, const DatasetView* set) {
    const bool classes = set && set->targets.labels && source_.classifies();
    return classes && of.rows > 0 ? static_cast<double>(of.correct) / static_cast<double>(of.rows)
                                  : std::nan("");
  };
  e.loss = data_.rows > 0 ? train->loss_sum / static_cast<double>(train->rows)
                          : mean_of_stream(counting.all());
  e.rows = train->rows;
  e.accuracy = share(*train, &data_);
  e.validation_accuracy = share(*validate, validation_);
  e.heads = train->heads;
  if (validate->rows > 0) {
    e.validation_loss = validate->loss_sum / static_cast<double>(validate->rows);
  }
  e.validation_heads = validate->heads;
  return true;
}

void Watch::judge(const Evaluated& e) {
  if (data_.rows == 0) return;  // the loss is the workers', who have judged it
  if (!std::isfinite(e.loss)) {
    crashed_ = true;  // also where something else has ended the run before
    return stop.stop(StopReason::not_finite);
  }
  if (until_.reached(e.loss, initial_loss())) {
    converged_ = true;
    const bool fraction = until_.reached_fraction(e.loss, initial_loss());
    return stop.stop(fraction ? StopReason::loss_fraction : StopReason::loss);
  }
  if (e.loss >= until_.divergence * initial_loss()) stop.stop(StopReason::divergence);
}

void Watch::end(TrainResult& result, std::uint64_t batches) {
  const double share = evaluations_.empty() ? 1 : evaluations_.back().loss / initial_loss();
  const bool crashed = crashed_ || stop.gave(StopReason::not_finite);
  const Ending ending{converged_, crashed, interrupted_, share, result.updates, batches};
  result.reason = reason_of(ending, stop, until_);
  result.outcome = outcome_of(ending, result.reason, until_);
  result.peak_memory_bytes = peak_resident_bytes();
  result.evaluations = std::move(evaluations_);
  result.observed = observers.found();
  if (result.evaluations.empty()) result.evaluations.push_back(nothing_evaluated());
}

}  // namespace leashed
