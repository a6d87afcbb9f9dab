#include "leashed/engine/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "leashed/base/clock.h"
#include "leashed/engine/evaluator.h"
#include "leashed/engine/executor.h"
#include "leashed/engine/memory.h"
#include "leashed/engine/run.h"

namespace leashed {
namespace {

constexpr double kSlice = 0.02;  // seconds between two looks at signals and the clock
constexpr double kShare = 0.1;   // of one thread, for evaluation, where no interval is given
// Where a loss is asked for, copies of theta between two evaluations, from which the moment it was
// reached is found afterwards. When there are too many, every second is dropped.
constexpr double kSnapshotInterval = 0.005;  // seconds, at first
constexpr std::size_t kSnapshots = 64;
constexpr std::size_t kSnapshotBytes = std::size_t{64} << 20;
constexpr double kPatience = 0.1;  // seconds of evaluation after an interruption
constexpr double kShortestInterval = 0.01;

class Trainer {
 public:
  Trainer(const GradientSource& source, const DatasetView& data, const DatasetView* validation,
          Discipline& discipline, const TrainOptions& options, const TrainCallbacks& callbacks)
      : run_(source, data, discipline, options.until, options.workers, options.batch_size,
             options.seed, options.from),
        validation_(validation),
        options_(options),
        callbacks_(callbacks),
        evaluator_(source, options.workers, [this] { return keep_evaluating(); }) {
    workers_.reserve(options.workers);
    for (std::size_t id = 0; id < options.workers; ++id) workers_.emplace_back(run_, id);
  }

  TrainResult train() {
    if (evaluate(options_.workers) && !run_.stop.stopped()) {
      start_ = now();
      ThreadExecutor executor(run_, workers_);
      started_ = true;
      watch(executor);
      elapsed_ = now() - start_;
      started_ = false;
    }
    if (run_.failure) std::rethrow_exception(run_.failure);
    return result();
  }

 private:
  // The monitor, until all workers have ended.
  void watch(ThreadExecutor& executor) {
    double next = interval();
    double next_snapshot =
        run_.until.wants_loss() ? kSnapshotInterval : std::numeric_limits<double>::infinity();
    double snapshot_interval = kSnapshotInterval;
    double next_checkpoint = options_.checkpoint_every;
    for (;;) {
      const double left = std::min({kSlice, next - clock(), next_snapshot - clock(),
                                    next_checkpoint - clock(), run_.until.seconds - clock()});
      if (executor.wait(std::max(left, 0.0))) return;
      look();
      if (run_.stop.stopped()) {
        executor.wait(kSlice);
      } else if (clock() >= next_checkpoint) {
        save();
        next_checkpoint = clock() + options_.checkpoint_every;
      } else if (clock() >= next) {
        const double begin = clock();
        evaluate(1);
        next = (options_.evaluate_every > 0 ? begin : clock()) + interval();
        snapshot_interval = kSnapshotInterval;
        next_snapshot = std::max(next_snapshot, clock() + snapshot_interval);
      } else if (clock() >= next_snapshot) {
        if (remember()) snapshot_interval *= 2;
        next_snapshot = clock() + snapshot_interval;
      }
    }
  }

  double interval() const {
    if (options_.evaluate_every > 0) return options_.evaluate_every;
    return std::max(kShortestInterval, evaluation_seconds_ * (1 - kShare) / kShare);
  }

  double clock() const { return started_ ? now() - start_ : elapsed_; }

  // Signals and the clock; throws what the callback throws.
  void look() {
    if (callbacks_.interrupted && callbacks_.interrupted()) {
      run_.stop.stop(StopReason::interrupted);
      if (!interrupted_) patience_ends_ = now() + kPatience;
      interrupted_ = true;
    }
    if (started_ && clock() >= run_.until.seconds) run_.stop.stop(StopReason::seconds);
  }

  // An evaluation while workers run is not worth finishing once they are to stop; the final one is,
  // unless the user has interrupted and it takes long.
  bool keep_evaluating() {
    if (now() >= next_look_) {
      look();
      next_look_ = now() + kSlice;
    }
    if (started_) return !run_.stop.stopped();
    return !interrupted_ || now() < patience_ends_;
  }

  // A figure of the process's memory less the monitor's own copies.
  std::uint64_t without_copies(std::uint64_t bytes) const {
    const std::size_t copies = snapshots_.size() + spare_.size();
    return bytes - std::min(bytes, copies * run_.source.dimension() * sizeof(float));
  }

  void forget(std::size_t first) {
    for (std::size_t i = first; i < snapshots_.size(); ++i) {
      spare_.push_back(std::move(snapshots_[i].theta));
    }
    snapshots_.resize(first);
  }

  // What the monitor sees at version t, but for loss and accuracy.
  Evaluated look_at(std::uint64_t t) const {
    Evaluated e{};
    e.seconds = clock();
    e.updates = t;
    e.live_vectors = run_.discipline.live_vectors() + workers_.size();
    e.memory_bytes = without_copies(resident_bytes());
    for (const Worker& worker : workers_) {
      e.gradients += worker.telemetry().gradients.get();
      worker.telemetry().staleness.merge_bins_into(e.staleness);
    }
    return e;
  }

  static double share(const Evaluation& e) {
    return static_cast<double>(e.correct) / static_cast<double>(e.rows);
  }

  // Adds loss and accuracy at theta; false where it ended early.
  bool measure(Evaluated& e, const float* theta, std::size_t threads) {
    const double begin = thread_seconds();
    const auto train = evaluator_(theta, run_.data, threads);
    std::optional<Evaluation> validate;
    if (train && validation_) validate = evaluator_(theta, *validation_, threads);
    if (!train || (validation_ && !validate)) return false;
    if (threads == 1) evaluation_seconds_ = thread_seconds() - begin;
    e.loss = train->loss_sum / static_cast<double>(train->rows);
    const bool classes = run_.data.targets.labels && run_.source.classifies();
    e.accuracy = classes ? share(*train) : std::numeric_limits<double>::quiet_NaN();
    e.validation_accuracy =
        validate && classes ? share(*validate) : std::numeric_limits<double>::quiet_NaN();
    return true;
  }

  double initial_loss() const {
    return evaluations_.empty() || !std::isnan(options_.initial_loss) ? options_.initial_loss
                                                                      : evaluations_.front().loss;
  }

  // Batches whose gradients are in theta at version t, or were given up. Not those that workers
  // have claimed ahead: a run that goes on uses them again.
  std::uint64_t used_batches(std::uint64_t t) const {
    std::uint64_t used = t - run_.from.updates;
    if (run_.discipline.lockstep()) return run_.from.batches + used * run_.workers;
    for (const Worker& worker : workers_) {
      used += worker.telemetry().dropped.get() + worker.telemetry().excluded.get();
    }
    return run_.from.batches + used;
  }

  void save() {
    if (!callbacks_.checkpoint) return;
    run_.discipline.with_state([&](const State& state) {
      callbacks_.checkpoint({state, {state.t, used_batches(state.t)}, initial_loss()});
    });
  }

  // Records the state now; false where it ended early.
  bool evaluate(std::size_t threads) {
    Evaluated e;
    bool complete = false;
    run_.discipline.with_snapshot([&](const float* theta, std::uint64_t t) {
      e = look_at(t);
      complete = measure(e, theta, threads);
    });
    if (!complete) return false;
    evaluations_.push_back(std::move(e));
    judge(evaluations_.back());
    if (!converged_) forget(0);
    if (callbacks_.progress) callbacks_.progress(evaluations_.back(), initial_loss());
    return true;
  }

  // Keeps a copy of the state now; true where the copies were thinned out to make room.
  bool remember() {
    const std::size_t dimension = run_.source.dimension();
    const std::size_t most = std::min(kSnapshots, kSnapshotBytes / (dimension * sizeof(float)));
    if (!run_.until.wants_loss() || most < 2) return false;
    const bool full = snapshots_.size() >= most;
    if (full) {
      for (std::size_t i = 1; 2 * i < snapshots_.size(); ++i) {
        std::swap(snapshots_[i], snapshots_[2 * i]);
      }
      forget((snapshots_.size() + 1) / 2);
    }
    std::vector<float> copy;
    if (!spare_.empty()) {
      copy = std::move(spare_.back());
      spare_.pop_back();
    }
    run_.discipline.with_snapshot([&](const float* theta, std::uint64_t t) {
      copy.assign(theta, theta + dimension);
      snapshots_.push_back({look_at(t), std::move(copy)});
    });
    return full;
  }

  // Finds, by bisection among the copies kept since the last evaluation that was above the loss
  // asked for, when it was reached (a moment where it was, if it was more than once), and records
  // what it evaluates.
  void refine() {
    std::size_t begin = 0, end = snapshots_.size();
    while (begin < end) {
      const std::size_t middle = (begin + end) / 2;
      Snapshot& snapshot = snapshots_[middle];
      if (!measure(snapshot.seen, snapshot.theta.data(), options_.workers)) return;
      if (reached(snapshot.seen)) {
        end = middle;
      } else {
        begin = middle + 1;
      }
      evaluations_.push_back(std::move(snapshot.seen));
    }
    std::sort(evaluations_.begin(), evaluations_.end(),
              [](const Evaluated& a, const Evaluated& b) { return a.seconds < b.seconds; });
  }

  bool reached_fraction(const Evaluated& e) const {
    return run_.until.loss_fraction > 0 && e.loss <= run_.until.loss_fraction * initial_loss();
  }

  bool reached(const Evaluated& e) const {
    return reached_fraction(e) || e.loss <= run_.until.loss;
  }

  void judge(const Evaluated& e) {
    if (!std::isfinite(e.loss)) {
      crashed_ = true;
      return run_.stop.stop(StopReason::not_finite);
    }
    if (reached(e)) {
      converged_ = true;
      run_.stop.stop(reached_fraction(e) ? StopReason::loss_fraction : StopReason::loss);
    } else if (e.loss >= run_.until.divergence * initial_loss()) {
      run_.stop.stop(StopReason::divergence);
    }
  }

  TrainResult result() {
    TrainResult result;
    if (elapsed_ > 0) evaluate(options_.workers);
    if (converged_) refine();
    look();
    if (evaluations_.empty()) {
      evaluations_.push_back({0, 0, std::nan(""), std::nan(""), std::nan(""), 0, 0, 0, {}});
    }
    run_.discipline.with_snapshot([&](const float* theta, std::uint64_t t) {
      result.parameters.assign(theta, theta + run_.source.dimension());
      result.updates = t;
    });
    crashed_ = crashed_ || run_.stop.reason() == StopReason::not_finite;
    if (elapsed_ > 0 && !crashed_) save();
    result.reason = crashed_       ? StopReason::not_finite
                    : interrupted_ ? StopReason::interrupted
                                   : run_.stop.reason();
    result.outcome = outcome(result.reason);
    result.evaluations = std::move(evaluations_);
    result.elapsed = elapsed_;
    for (const Worker& worker : workers_) {
      const WorkerTelemetry& telemetry = worker.telemetry();
      result.gradients += telemetry.gradients.get();
      result.dropped += telemetry.dropped.get();
      result.excluded += telemetry.excluded.get();
      telemetry.staleness.merge_into(result.staleness);
      telemetry.staleness_compute.merge_into(result.staleness_compute);
      telemetry.staleness_schedule.merge_into(result.staleness_schedule);
      telemetry.tries.merge_into(result.tries);
      telemetry.gradient_seconds.merge_into(result.gradient_seconds);
      telemetry.update_seconds.merge_into(result.update_seconds);
      result.read_seconds += telemetry.read_seconds;
      result.sampling_seconds += telemetry.sampling_seconds;
      result.waiting_seconds += telemetry.waiting_seconds;
      result.running_seconds += telemetry.running_seconds;
    }
    result.peak_vectors = run_.discipline.peak_vectors() + workers_.size();
    // The system brings its peak up to date later than what is resident now.
    result.peak_memory_bytes = without_copies(peak_resident_bytes());
    for (const Evaluated& e : result.evaluations) {
      result.peak_memory_bytes = std::max(result.peak_memory_bytes, e.memory_bytes);
    }
    return result;
  }

  std::string outcome(StopReason reason) const {
    if (crashed_) return "crashed";
    if (converged_) return "converged";
    if (interrupted_) return "stopped";
    if (reason == StopReason::divergence || run_.until.wants_loss()) return "diverged";
    return "stopped";
  }

  Run run_;
  const DatasetView* const validation_;
  const TrainOptions& options_;
  const TrainCallbacks& callbacks_;
  Evaluator evaluator_;
  std::vector<Worker> workers_;
  struct Snapshot {
    Evaluated seen;
    std::vector<float> theta;
  };
  std::vector<Evaluated> evaluations_;
  std::vector<Snapshot> snapshots_;        // since the last evaluation, oldest first
  std::vector<std::vector<float>> spare_;  // memory for more
  double start_ = 0, elapsed_ = 0;
  double evaluation_seconds_ = 0;  // of one thread's time, for the last evaluation beside workers
  double next_look_ = 0, patience_ends_ = 0;
  bool started_ = false, interrupted_ = false, converged_ = false, crashed_ = false;
};

}  // namespace

TrainResult train(const GradientSource& source, const DatasetView& data,
                  const DatasetView* validation, Discipline& discipline,
                  const TrainOptions& options, const TrainCallbacks& callbacks) {
  return Trainer(source, data, validation, discipline, options, callbacks).train();
}

}  // namespace leashed
