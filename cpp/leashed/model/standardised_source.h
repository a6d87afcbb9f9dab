// A source that is trained on a stream whose numbers are standardised as they come: what it
// evaluates meanwhile, which lies in memory as it is, is standardised by what the stream had come
// to when the evaluation began.
#pragma once

#include <memory>

#include "leashed/data/standard_numbers.h"
#include "leashed/model/gradient_source.h"

namespace leashed {

class StandardisedSource final : public GradientSource {
 public:
  // Both must stay. Without scales, as of a stream that has no row yet, numbers are their means.
  StandardisedSource(const GradientSource& source, const StandardNumbers& standard);

  std::unique_ptr<Workspace> make_workspace() const override;
  std::shared_ptr<void> attach() const override { return source_.attach(); }
  std::optional<RunningStatistics> running() const override { return source_.running(); }
  std::shared_ptr<const NumberScales> scales() const override { return standard_.scales(); }

  float gradient(const float* theta, const BatchView& batch, float* gradient, Workspace& workspace,
                 const std::atomic<bool>& cancel) const override;
  Evaluation evaluate(const float* theta, const BatchView& batch,
                      Workspace& workspace) const override;

 private:
  struct Own;

  const GradientSource& source_;
  const StandardNumbers& standard_;
};

}  // namespace leashed
