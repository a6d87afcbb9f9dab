// Loss and accuracy of a whole dataset at one theta, on as many threads as the work is worth.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "leashed/base/team.h"
#include "leashed/data/batch_source.h"
#include "leashed/model/gradient_source.h"

namespace leashed {

class Evaluator {
 public:
  // `keep_on` is asked now and then on the calling thread; where it says no, evaluation ends early.
  Evaluator(const GradientSource& source, std::function<bool()> keep_on)
      : source_(source), keep_on_(std::move(keep_on)) {}

  // Nothing where it ended early. On at most `threads`, and no more than there are processors; the
  // result has the same bits whatever their number. Of every `every`-th chunk of the rows
  // alone.
  std::optional<Evaluation> operator()(const float* theta, const DatasetView& data,
                                       std::size_t threads, std::size_t every = 1);

 private:
  static constexpr std::size_t kChunk = 256;  // rows between two looks at whether to go on

  // One thread's.
  struct Scratch {
    std::unique_ptr<Workspace> workspace;
    Batch batch;
  };
  // Of one evaluation.
  struct Job;
  void work(Job& job, Scratch& scratch, const std::function<bool()>& keep_on, std::size_t most);
  Evaluation evaluate_chunk(const Job& job, std::size_t chunk, Scratch& scratch) const;
  // How many threads beside the caller's are worth waking for so many chunks.
  std::size_t helpers(std::size_t threads, std::size_t chunks) const;

  const GradientSource& source_;
  const std::function<bool()> keep_on_;
  std::vector<Scratch> scratch_;  // the caller's is the first
  double chunk_seconds_ = 0;      // what a chunk takes; 0: not known yet
  Team team_;
};

}  // namespace leashed
