// Progressive validation: how good a training's outputs are on rows that it is about to train on.
//
// Each gradient's forward pass gives its batch's logits with parameters that have not seen these
// rows (in the first pass over the data), so counting them is a validation that costs no pass of
// its own. A worker counts in memory of its own, of which it has two parts. When the monitor looks
// it asks; the worker, after its next batch, hands over the part that it has counted in and goes on
// in the other. So what is looked at is made of whole batches, nobody waits and nothing is locked;
// what is not handed over by the time the monitor takes it is in the next window.
//
// Users are let go by all workers together (user_limit.h), and no more of them than one alone that
// had counted all rows would: GAUC is of the same users whoever trained on which batches.
//
// A worker's turn is one word: counting → asked, by the monitor; asked → handed, by the worker;
// handed → counting, by the monitor, who has merged and cleared that part by then.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/data/batch_view.h"
#include "leashed/data/scored_heads.h"
#include "leashed/engine/step_observer.h"
#include "leashed/engine/telemetry.h"

namespace leashed {

class ProgressMetrics final : public StepObserver {
 public:
  // GAUC of so many rows at most, by the targets' users, and as many again of the window. Of rows
  // that have not been collected workers have about as many in the parts that they count in, and in
  // those that they have handed over; one that stands still has what it had. 0: none. Of each label
  // of rows, so many.
  ProgressMetrics(std::size_t workers, std::size_t kept, std::size_t heads = 1);

  bool needs_logits() const override { return true; }
  void used(const WorkerStep& step) override {
    if (step.batch->logits) add(step.worker, *step.batch);
  }
  // Worker's. Counts a batch whose logits are there.
  void add(std::size_t worker, const BatchView& batch);

  // The monitor's.
  void ask();
  // What has been handed over since the last time; null: nothing has.
  std::shared_ptr<const ScoredWindow> take(double seconds, std::uint64_t updates);
  // From now on all that they have counted is taken. They have been joined.
  void workers_ended() { ended_ = true; }
  const std::vector<std::shared_ptr<const ScoredWindow>>& windows() const { return windows_; }

 private:
  enum class Turn : std::uint8_t { counting, asked, handed };
  struct alignas(kCacheLine) Worker {
    Worker(std::size_t heads, std::size_t kept, std::deque<UserLimit>* limits, std::size_t at_once)
        : parts{ScoredHeads(heads, kept, limits, at_once),
                ScoredHeads(heads, kept, limits, at_once)} {}

    std::atomic<Turn> turn{Turn::counting};
    std::size_t counting = 0;                    // the part, the worker's
    alignas(kCacheLine) std::size_t handed = 0;  // the part that is next, the monitor's
    ScoredHeads parts[2];
  };

  void collect(ScoredHeads& part);

  std::deque<UserLimit> limits_;  // of each head
  std::vector<std::unique_ptr<Worker>> workers_;
  ScoredHeads window_, total_;
  bool ended_ = false;
  std::vector<std::shared_ptr<const ScoredWindow>> windows_;
};

}  // namespace leashed
