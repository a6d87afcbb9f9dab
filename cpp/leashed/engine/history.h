// What a training's monitor has seen: evaluations, and copies of theta between two of them from
// which the moment each loss asked for was reached is found afterwards.
#pragma once

#include <optional>
#include <vector>

#include "leashed/base/clock.h"
#include "leashed/engine/evaluator.h"
#include "leashed/engine/run.h"
#include "leashed/engine/telemetry.h"

namespace leashed {

class History {
 public:
  // `initial_loss`: NaN: that of the first evaluation.
  History(const Run& run, const DatasetView* validation, Evaluator& evaluator,
          const Stopwatch& clock, double initial_loss);

  // Records the state now; false where the evaluation ended early.
  bool evaluate(std::size_t threads, bool aside = false);
  // Keeps a copy of it, if it is another than the last one's; true where the copies were thinned
  // out to make room.
  bool remember();
  // Whether the losses that workers find in their batches, times what the last evaluation was above
  // them, say that the run's loss is reached now.
  bool promising() const;
  // Finds, for each loss that was reached, when it was (a moment where it was, if it was more than
  // once): by a search among the copies kept between the last evaluation above it and the first
  // below. Records what it evaluates.
  void refine(std::size_t threads);

  const std::vector<Evaluated>& evaluations() const { return evaluations_; }
  double initial_loss() const;
  // The loss of the last evaluation over that.
  double loss_share() const {
    return evaluations_.empty() ? 0 : evaluations_.back().loss / initial_loss();
  }
  // Of one thread's time, for the last evaluation beside workers, and for the last copy.
  double evaluation_seconds() const { return evaluation_seconds_ + scoring_seconds_; }
  double copy_seconds() const { return copy_seconds_; }
  // A figure of the process's memory less the copies.
  std::uint64_t without_copies(std::uint64_t bytes) const;

 private:
  struct Copy {
    Evaluated seen;  // its loss: NaN until it is measured
    std::vector<float> theta, statistics;
    double sampled;  // its loss over a part of the rows; NaN until it is measured
  };
  // Copies among which some losses were reached.
  struct Crossing {
    std::vector<double> losses;  // largest first
    std::vector<Copy> copies;    // oldest first; the last is the evaluation that reached the losses
    Evaluated above;             // before them
  };
  // What there is to see at version t, but for loss and accuracy. Called with the snapshot: one may
  // have waited for it.
  Evaluated look_at(std::uint64_t t) const;
  // Of the source that has any, now: what an evaluation of now normalises by, however long it
  // lasts.
  std::vector<float> statistics() const;
  // Adds loss and accuracy at theta; false where it ended early.
  bool measure(Evaluated& e, const float* theta, std::span<const float> statistics,
               std::size_t threads);
  bool measure_streaming(Evaluated& e, const float* theta, std::span<const float> statistics,
                         std::size_t threads);
  // What the latest evaluation has reached is to be looked for among the copies before it; if it
  // has reached nothing, these are forgotten.
  void settle();
  std::size_t most_copies() const;  // 0: none are needed, or they would be too large
  // The mean loss of the workers' last batches of data in memory; NaN: none yet.
  double heard() const;
  // The first copy from `begin` on, which it is set to, whose loss is at most that; false where an
  // evaluation ended early.
  bool search(Crossing& crossing, double loss, std::size_t& begin, std::size_t threads);
  // Where in [begin, end) that is by a part of the rows, whose losses are multiplied by `factor`;
  // the last where it is nowhere.
  std::size_t guess(std::vector<Copy>& copies, std::size_t begin, std::size_t end, double loss,
                    double factor, std::size_t threads);
  // The loss of a part of the rows; NaN where the evaluation ended early.
  double sampled(Copy& copy, std::size_t threads);

  const Run& run_;
  const std::vector<const WorkerTelemetry*> workers_;
  const DatasetView* const validation_;
  Evaluator& evaluator_;
  const std::size_t every_;  // chunk of the training set that is evaluated
  const Stopwatch& clock_;
  const double given_initial_loss_;
  std::vector<Evaluated> evaluations_;
  std::vector<double> losses_;  // asked for and not reached yet, largest first
  std::vector<Copy> copies_;    // since the last evaluation, oldest first
  std::vector<Crossing> crossings_;
  std::vector<std::vector<float>> spare_;  // memory for more
  std::vector<float> evaluating_;          // theta meanwhile
  std::vector<float> evaluating_by_;       // statistics likewise
  double evaluation_seconds_ = 0, scoring_seconds_ = 0, copy_seconds_ = 0;
  double above_heard_ = 1;  // the last evaluation's loss over what workers found then; at least 1
};

}  // namespace leashed
