// Loss and accuracy of a whole dataset at one theta, on as many threads as the work is worth.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "leashed/base/team.h"
#include "leashed/data/batch_source.h"
#include "leashed/data/scored_heads.h"
#include "leashed/model/gradient_source.h"
#include "leashed/row_store/row_store.h"

namespace leashed {

class Evaluator {
 public:
  // `keep_on` is asked now and then on the calling thread; where it says no, evaluation ends early.
  // rows: of the tables that the source reads; no more threads evaluate than it has readers.
  Evaluator(const GradientSource& source, std::function<bool()> keep_on, RowStore* rows = nullptr)
      : source_(source), keep_on_(std::move(keep_on)), rows_(rows) {}

  // Nothing where it ended early. On at most `threads`, and no more than there are processors; the
  // loss and what is right have the same bits whatever their number. Of every `every`-th chunk of
  // the rows alone. `logits`: null, or where each row's go, of a source that gives any. All rows
  // are normalised by `statistics`, of a source that has any; nothing: by what these run to when
  // it is called, as they are standardised by what numbers have come to then.
  std::optional<Evaluation> operator()(const float* theta, const DatasetView& data,
                                       std::size_t threads, std::size_t every = 1,
                                       float* logits = nullptr,
                                       std::optional<std::span<const float>> statistics = {});
  // What `every` has to be for at most so many rows, though one chunk, evenly over all. 0: all.
  static std::size_t every(const DatasetView& data, std::size_t rows);

 private:
  static constexpr std::size_t kChunk = 256;  // rows between two looks at whether to go on

  // One thread's.
  struct Scratch {
    std::unique_ptr<Workspace> workspace;
    Batch batch;
    std::unique_ptr<BatchRows> rows;
    std::vector<float> logits;
    std::optional<ScoredHeads> metrics;
  };
  // Of one evaluation.
  struct Job;
  void work(Job& job, std::size_t reader, const std::function<bool()>& keep_on, std::size_t most);
  Evaluation evaluate_chunk(const Job& job, std::size_t chunk, std::size_t reader,
                            const std::function<bool()>& keep_on);
  void prepare(Scratch& scratch) const;
  std::optional<ScoredHeads> gather_metrics();
  // How many threads beside the caller's are worth waking for so many chunks.
  std::size_t helpers(std::size_t threads, std::size_t chunks) const;

  const GradientSource& source_;
  const std::function<bool()> keep_on_;
  RowStore* const rows_;
  std::vector<Scratch> scratch_;  // by reader; the caller's is the first
  double chunk_seconds_ = 0;      // what a chunk takes; 0: not known yet
  Team team_;
};

}  // namespace leashed
