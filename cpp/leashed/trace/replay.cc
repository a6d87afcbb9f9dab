#include "leashed/trace/replay.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "leashed/base/error.h"
#include "leashed/data/make_batches.h"
#include "leashed/data/reading.h"
#include "leashed/data/run_sampler.h"
#include "leashed/discipline/synchronous.h"
#include "leashed/discipline/updater.h"
#include "leashed/engine/step.h"
#include "leashed/row_store/row_store.h"
#include "leashed/sparse/runs.h"

namespace leashed {
namespace {

[[noreturn]] void contradiction(std::uint64_t t) {
  throw Error("its records contradict each other at update " + std::to_string(t + 1) +
              "; record the training again");
}

// One worker's gradients that were published.
class Part {
 public:
  Part(const Trace& trace, std::size_t worker, std::size_t factors, std::size_t dimension)
      : records_(trace, worker, factors), gradient_(dimension) {}

  // To the next one; the others are counted, and skipped(record) called of each.
  template <class Skip>
  void advance(Replayed& counts, const Skip& skipped) {
    computed_ = false;
    while ((more_ = records_.next(next_))) {
      switch (next_.outcome) {
        case trace::Outcome::published:
          ++counts.published;
          return;
        case trace::Outcome::dropped:
          ++counts.dropped;
          break;
        case trace::Outcome::excluded:
          ++counts.excluded;
          break;
        case trace::Outcome::given_up:
          ++counts.given_up;
      }
      skipped(next_);
    }
  }

  bool replaces(std::uint64_t t) const { return more_ && next_.t() == t; }
  bool was_computed_on(std::uint64_t t) const { return more_ && next_.t_read == t; }
  // Whether the version that it was computed on is gone, or the one that it replaces.
  bool missed(std::uint64_t t) const {
    return more_ && (next_.t() < t || (!computed_ && next_.t_read < t));
  }

  const TraceRecord& next() const { return next_; }
  const std::vector<double>& factors() const { return records_.factors(); }
  float* gradient() { return gradient_.data(); }
  double loss() const { return loss_; }
  void computed(double loss) { computed_ = true, loss_ = loss; }
  bool is_computed() const { return computed_; }

  std::unique_ptr<BatchRows> rows;  // null: the source reads none
  WorkerStep step;                  // of what was computed last

 private:
  TraceCursor records_;
  TraceRecord next_;
  bool more_ = false, computed_ = false;
  AlignedArray<float> gradient_;
  double loss_ = 0;
};

class Replayer {
 public:
  Replayer(const GradientSource& source, const DatasetView& data, const DisciplineContext& context,
           bool lockstep, const Trace& trace, const ReplayOptions& options)
      : source_(source),
        options_(options),
        lockstep_(lockstep),
        batches_(make_batches(data, options.batch_size, options.seed, options.stream)),
        reading_(options.stream, options.used * options.batch_size),
        workspace_(source.make_workspace()),
        updater_(context),
        policy_(context.staleness),
        current_(updater_.initial(context)),
        previous_(updater_.layout().length()),
        t_(context.t),
        interruption_(options.interrupted),
        observers_(options.workers) {
    for (StepObserver* const one : options.observers) observers_.add(*one);
    const std::size_t factors = trace::factors(policy_, updater_.layout().blocks, lockstep);
    for (std::size_t worker = 0; worker < options.workers; ++worker) {
      parts_.emplace_back(trace, worker, factors, updater_.layout().dimension);
      if (options.rows) parts_.back().rows = options.rows->make_batch();
      advance(parts_.back());
    }
  }

  Replayed run() {
    const auto attached = source_.attach();
    while (t_ < options_.until && !interrupted()) {
      const auto next = std::ranges::find_if(parts_, [this](const Part& p) {
        if (p.missed(t_)) contradiction(t_);
        return p.replaces(t_);
      });
      if (next == parts_.end()) break;
      if (lockstep_ && !std::ranges::all_of(parts_, [this](const Part& p) {
            return p.was_computed_on(t_) && p.replaces(t_);
          })) {
        break;  // killed before all had recorded the step
      }
      for (Part& part : parts_) compute(part);
      if (!next->is_computed()) contradiction(t_);
      update(*next);
    }
    const std::size_t d = updater_.layout().dimension;
    result_.t = t_;
    result_.parameters.assign(current_.data(), current_.data() + d);
    if (!result_.last.empty()) result_.before.assign(previous_.data(), previous_.data() + d);
    if (options_.rows) options_.rows->reach(t_);
    result_.observed = observers_.found();
    return std::move(result_);
  }

 private:
  bool interrupted() { return result_.interrupted = interruption_(); }

  std::size_t worker(const Part& part) const {
    return static_cast<std::size_t>(&part - parts_.data());
  }
  void compute(Part& part) {
    if (part.is_computed() || !part.was_computed_on(t_)) return;
    WorkerStep& step = part.step = begun(part);
    step.view.theta = current_.data();
    step.gradient = {part.gradient(), updater_.layout().dimension};
    const auto rows = [&] {
      batches_->fill(step.k, batch_);
      step.set_batch(batch_);
      observers_.claimed(step);
      if (RowStore* const store = options_.rows) {
        store->prefetch(step.worker, batch_.view, *part.rows);
        store->pull(step.worker, batch_.view, *part.rows);
      }
      observers_.read(step);
    };
    const auto gradient = [&] {
      const float loss =
          source_.gradient(step.view.theta, batch_.view, part.gradient(), *workspace_, never_);
      part.computed(loss);
      return loss;
    };
    StopFlag on;  // also where a loss is no number
    if (leashed::compute(step, observers_, on, rows, gradient)) observers_.used(step);
    step.batch = nullptr;
    step.streamed = nullptr;
  }
  WorkerStep begun(const Part& part) const {
    const TraceRecord& record = part.next();
    return {
        .worker = worker(part), .place = record.k, .k = record.k, .view = {nullptr, record.t_read}};
  }

  void update(Part& part) {
    result_.last.clear();
    const Updater::Damping damping = options_.in_place ? step_in_place(part)
                                     : lockstep_       ? step_together()
                                                       : step(part);
    for (Part& one : lockstep_ ? std::span(parts_) : std::span(&part, 1)) {
      const TraceRecord& record = one.next();
      result_.last.push_back({worker(one), record, one.loss(), damping.factor});
      if (options_.rows) options_.rows->push(worker(one), *one.rows, {t_});
      observers_.published(one.step,
                           {.published = true,
                            .t = t_,
                            .factor = damping.factor,
                            .factors = damping.variables,
                            .staleness_compute = record.staleness - record.staleness_schedule,
                            .staleness_schedule = record.staleness_schedule,
                            .tries = record.tries});
    }
    const float* applied = part.gradient();
    result_.gradient.assign(applied, applied + updater_.layout().dimension);
    std::swap(current_, previous_);
    ++t_;
    if (!lockstep_) return advance(part);
    for (Part& one : parts_) advance(one);
  }

  // Rows of a stream are taken also for what came to nothing: those behind them could not go.
  void advance(Part& part) {
    part.advance(result_, [&](const TraceRecord& record) {
      if (options_.stream) batches_->fill(record.k, batch_);
      if (record.outcome == trace::Outcome::given_up) {
        return observers_.abandoned(begun(part), {.abandoned = true});
      }
      const bool excluded = record.outcome == trace::Outcome::excluded;
      observers_.published(begun(part), {.excluded = excluded,
                                         .t = record.t(),
                                         .factor = excluded ? 0.0 : 1.0,
                                         .tries = record.tries});
    });
  }

  // As the disciplines that publish one gradient at a time. Returns its factors.
  Updater::Damping step(Part& part) {
    const GradientPiece whole{part.gradient(), 0, updater_.layout().dimension};
    Updater::Damping damping;
    if (!policy_.statistics()) {
      damping = updater_.damping(current_.data(), part.next().staleness);
    } else if (const auto& factors = part.factors(); updater_.layout().blocks == 0) {
      damping.factor = factors.front();
    } else {
      damping = {*std::ranges::max_element(factors), factors.data()};
    }
    updater_.apply(previous_.data(), current_.data(), {&whole, 1},
                   {t_, damping, updater_.clip_factor({&whole, 1})});
    return damping;
  }

  // With its batch, whose gradient has just been computed, as a run of its own.
  Updater::Damping step_in_place(const Part& part) {
    SparseRuns& runs = *options_.in_place->sparse_runs();
    const InPlaceView view = runs.open(0, 1);
    source_.in_place()->update(
        {view.theta, view.stride, options_.batch_size, *view.rule, view.t, nullptr}, batch_.view,
        *workspace_);
    const std::size_t claim = RunSampler::run_of(options_.batch_size);
    runs.close(0, 1, view.effect_with(part.next().k, 1, claim, 0, source_.described().l2));
    options_.in_place->with_snapshot([this](const float* theta, std::uint64_t) {
      std::copy_n(theta, updater_.layout().dimension, previous_.data());
    });
    return {};
  }

  // The first worker's gradient becomes the mean.
  Updater::Damping step_together() {
    std::vector<float*> gradients;
    for (Part& part : parts_) gradients.push_back(part.gradient());
    const double factor =
        policy_.statistics() ? parts_.front().factors().front() : updater_.fresh_factor();
    std::copy_n(current_.data(), updater_.layout().length(), previous_.data());
    apply_mean(updater_, gradients, previous_.data(), {t_, factor});
    return {factor};
  }

  const GradientSource& source_;
  const ReplayOptions& options_;
  const bool lockstep_;
  const std::unique_ptr<const BatchSource> batches_;
  const Reading reading_;
  const std::unique_ptr<Workspace> workspace_;
  const Updater updater_;
  const StalenessPolicy& policy_;
  std::vector<Part> parts_;
  AlignedArray<float> current_, previous_;  // whole buffers; the next is made in the previous
  std::uint64_t t_;
  Batch batch_;
  const std::atomic<bool> never_{false};
  Interruption interruption_;
  Observers observers_;
  Replayed result_;
};

// The updates that the records tell of, counted from the run's beginning; none: it was interrupted.
std::optional<std::uint64_t> recorded(const Trace& trace, const ReplayOptions& options,
                                      std::size_t factors, std::uint64_t first) {
  Interruption interruption(options.interrupted);
  std::uint64_t last = first;
  TraceRecord record;
  for (std::size_t worker = 0; worker < options.workers; ++worker) {
    TraceCursor records(trace, worker, factors);
    while (records.next(record)) {
      if (interruption()) return std::nullopt;
      if (record.outcome == trace::Outcome::published) last = std::max(last, record.t() + 1);
    }
  }
  return last;
}

}  // namespace

Replayed replay(const GradientSource& source, const DatasetView& data,
                const DisciplineContext& context, bool lockstep, const Trace& trace,
                const ReplayOptions& options) {
  if (options.until != ReplayOptions::kAll) {
    const std::size_t factors =
        trace::factors(context.staleness, Updater(context).layout().blocks, lockstep);
    const auto last = recorded(trace, options, factors, context.t);
    if (!last) return {.interrupted = true};
    require_recorded(options, *last);
  }
  Replayed result = Replayer(source, data, context, lockstep, trace, options).run();
  compare_with_end(result, trace, options);
  return result;
}

}  // namespace leashed
