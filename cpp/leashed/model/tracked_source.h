// A source with statistics, and what they run to while it is trained: each worker averages those of
// its own batches, the younger the more (momentum 0.99), and running() gives the mean of the
// workers' averages, weighted by how many batches each is of: whoever evaluates asks once, and
// normalises all of its batches by that. It stands for the source in a
// training, whoever carries that out.
//
// An average begins with its first batch and not with 0: of n batches, the last one's share is
// (1 − 0.99) / (1 − 0.99ⁿ). Before there is a batch, what is evaluated is normalised by what it
// comes to itself, 64 rows at a time. A batch of one example tells nothing and is not averaged.
//
// Each workspace has a seat: one writer and any number of readers, who see it whole. The writer
// makes `turn` odd, writes, and makes it even; a reader who has seen two turns, or an odd one,
// looks again. Each value is stored with release and loaded with acquire: who has seen one of a
// turn's values sees that turn too.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "leashed/model/gradient_source.h"

namespace leashed {

class TrackedSource final : public GradientSource {
 public:
  // Of so many workers, who go on from `begun`, of whose batches each takes an equal share.
  TrackedSource(const GradientSource& source, std::size_t workers, RunningStatistics begun);
  ~TrackedSource() override;

  std::optional<RunningStatistics> running() const override;
  std::shared_ptr<const NumberScales> scales() const override { return source_.scales(); }

  std::unique_ptr<Workspace> make_workspace() const override;
  std::shared_ptr<void> attach() const override { return source_.attach(); }

  float gradient(const float* theta, const BatchView& batch, float* gradient, Workspace& workspace,
                 const std::atomic<bool>& cancel) const override;
  Evaluation evaluate(const float* theta, const BatchView& batch,
                      Workspace& workspace) const override;

 private:
  struct Seat;
  struct Own;

  const GradientSource& source_;
  const std::vector<StatisticBlock> blocks_;
  const std::size_t size_;
  const RunningStatistics begun_;
  const std::uint64_t share_;  // of the begun batches, each worker's
  mutable std::mutex mutex_;   // of the list of seats; not of what is in them
  mutable std::vector<std::unique_ptr<Seat>> seats_;
};

}  // namespace leashed
