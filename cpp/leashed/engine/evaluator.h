// Loss and accuracy of a whole dataset at one theta, on one thread or on an OpenMP team.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "leashed/data/dataset_view.h"
#include "leashed/model/gradient_source.h"

namespace leashed {

class Evaluator {
 public:
  // `keep_on` is asked now and then on the calling thread; where it says no, evaluation ends early.
  // At most `max_threads`, and no more than there are processors.
  Evaluator(const GradientSource& source, std::size_t max_threads, std::function<bool()> keep_on);

  // The most that an evaluation can use.
  std::size_t threads() const { return scratch_.size(); }

  // Nothing where it ended early.
  std::optional<Evaluation> operator()(const float* theta, const DatasetView& data,
                                       std::size_t threads);

 private:
  static constexpr std::size_t kChunk = 256;  // rows between two looks at whether to go on

  struct Scratch {
    std::unique_ptr<Workspace> workspace;
    std::vector<const float*> rows;
    Evaluation sum;
    std::exception_ptr failure;
  };
  void evaluate_chunk(const float* theta, const DatasetView& data, std::size_t chunk,
                      Scratch& scratch);

  const GradientSource& source_;
  const std::function<bool()> keep_on_;
  std::vector<Scratch> scratch_;
};

}  // namespace leashed
