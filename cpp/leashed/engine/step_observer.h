// Who is told of the steps of a training: what records, counts, hands out batches, keeps trainings
// in step or only looks on is an observer, in one list that is made once for a training. No loop
// knows any of them by name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "leashed/data/batch_source.h"
#include "leashed/discipline/publication.h"

namespace leashed {

// A worker's step, as far as it has come.
struct WorkerStep {
  std::size_t worker = 0;
  std::uint64_t place = 0;  // of the batch among those that this training has claimed
  std::uint64_t k = 0;      // the batch's number; of a run in place the first's; of a mode's lease
  std::uint64_t count = 1;  // batches: of a run in place several
  // Null: not filled yet, not known any more, or of a run in memory, which has its parts'.
  BatchView* batch = nullptr;
  const StreamedRows* streamed = nullptr;  // where the rows came from; null: they lie in memory
  std::uint64_t first_row = 0;             // then, of the batch: its number in the stream
  // What the gradient is of, and the gradient (empty: updates are made in place, and nobody needs
  // one). They lie there until `computed` has been told: publishing gives the first up, and may
  // write over the second.
  View view{};
  std::span<const float> gradient = {};
  double loss_sum = 0;  // of the rows
  double seconds = 0;   // that the part has taken which is told of

  void set_batch(Batch& of) {
    batch = &of.view;
    streamed = of.streamed.get();
    if (streamed) first_row = streamed->first;
  }
};

// What an observer has found, by name.
using Found = std::map<std::string, double>;

// Of a worker it is told by that worker's thread, in the order below, of `published` by a mode by
// whoever carries out the update, under the server's lock. What it throws ends the training.
class StepObserver {
 public:
  virtual ~StepObserver() = default;

  // Whether batches are to have their logits written; asked once.
  virtual bool needs_logits() const { return false; }
  // Whether it looks at gradients: then one is computed for it where updates are made in place.
  virtual bool needs_gradients() const { return false; }
  // A batch that the worker trains on next, unless the run ends before.
  virtual void claimed(const WorkerStep&) {}
  // What its gradient will be of, parameters and rows of tables, is there.
  virtual void read(const WorkerStep&) {}
  // The gradient is there, as the source gave it, and its loss is a number.
  virtual void computed(const WorkerStep&) {}
  // It counts, whatever becomes of it: its batch has been trained on. Of a run in place told for
  // each of its parts.
  virtual void used(const WorkerStep&) {}
  // What became of it.
  virtual void published(const WorkerStep&, const Publication&) {}
  // It came to nothing, since the run is stopped: as if it had never been claimed.
  virtual void abandoned(const WorkerStep&, const Publication&) {}

  // The worker has no batch, and waits: told again and again until it has one.
  virtual void waiting(std::size_t /*worker*/) {}
  virtual void resumed(std::size_t /*worker*/) {}
  // It takes part no more. (In virtual time nobody is told, and nobody waits for a batch.)
  virtual void leave(std::size_t /*worker*/) {}

  // So far; from another thread than the workers', while they run, and in the end.
  virtual Found found() const { return {}; }
};

class Observers {
 public:
  explicit Observers(std::size_t workers) : workers_(workers) {}

  // Before any step; it must stay.
  void add(StepObserver& one) {
    all_.push_back(&one);
    if (one.needs_logits()) logits_.resize(workers_);
  }

  bool need_gradients() const {
    return std::ranges::any_of(all_, [](const auto* one) { return one->needs_gradients(); });
  }
  // Where an observer needs them.
  void place_logits(const WorkerStep& step) {
    if (logits_.empty()) return;
    std::vector<float>& logits = logits_[step.worker];
    const std::size_t size = step.batch->size * step.batch->targets.width;
    if (logits.size() < size) logits.resize(size);
    step.batch->logits = logits.data();
  }
  void claimed(const WorkerStep& step) { each(&StepObserver::claimed, step); }
  void read(const WorkerStep& step) { each(&StepObserver::read, step); }
  void computed(const WorkerStep& step) { each(&StepObserver::computed, step); }
  void used(const WorkerStep& step) { each(&StepObserver::used, step); }
  void published(const WorkerStep& step, const Publication& what) {
    each(&StepObserver::published, step, what);
  }
  void abandoned(const WorkerStep& step, const Publication& what) {
    each(&StepObserver::abandoned, step, what);
  }
  void waiting(std::size_t worker) { each(&StepObserver::waiting, worker); }
  void resumed(std::size_t worker) { each(&StepObserver::resumed, worker); }
  // All are told, whatever one of them throws, which `failed` is given.
  template <class Failed>
  void leave(std::size_t worker, const Failed& failed) {
    for (StepObserver* const one : all_) {
      try {
        one->leave(worker);
      } catch (...) {
        failed(std::current_exception());
      }
    }
  }
  Found found() const {
    Found all;
    for (const StepObserver* one : all_) all.merge(one->found());
    return all;
  }

 private:
  template <class Event, class... Told>
  void each(Event event, const Told&... told) {
    for (StepObserver* const one : all_) (one->*event)(told...);
  }

  const std::size_t workers_;
  std::vector<StepObserver*> all_;
  std::vector<std::vector<float>> logits_;  // of each worker; none: nobody needs them
};

}  // namespace leashed
