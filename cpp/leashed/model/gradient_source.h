// The gradient source contract (docs/architecture.md, decision 8): where gradients come from
// is one choice among the others, so the engine knows a model only through this interface.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "leashed/data/batch_view.h"

namespace leashed {

class Rule;

// Scratch memory of one thread; a source makes it and alone knows what is in it.
class Workspace {
 public:
  virtual ~Workspace() = default;
};

// How sparse rows change parameters where they lie.
struct SparseUpdate {
  float* theta;
  std::size_t stride;      // from theta to the rule's state
  std::size_t batch_size;  // rows of one gradient
  const Rule& rule;
  std::uint64_t t;         // updates applied before
  double* loss = nullptr;  // takes the sum of the rows' losses, where one is given
};

// Sums over the rows of a batch, so that those of several threads can be added.
struct Evaluation {
  double loss_sum = 0;
  std::uint64_t correct = 0;
  std::uint64_t rows = 0;
  // Of the rows together, where they have logits (click_metrics.h).
  double auc = std::numeric_limits<double>::quiet_NaN();
  double normalised_entropy = std::numeric_limits<double>::quiet_NaN();
};

// A table that a source reads rows of.
struct TableShape {
  std::string name;
  std::size_t dim;  // floats of a row
};

// What batches come to that is no parameter: means that a source normalises by.
struct StatisticBlock {
  std::string name;          // "<index>.mean" or "<index>.variance", the index of its node
  std::size_t offset, size;  // among all
  float least;               // those nearer to 0 count as ± this
};

// Averages of what so many batches have come to.
struct RunningStatistics {
  std::vector<float> values;  // by StatisticBlock; empty: there is no batch yet
  std::uint64_t batches = 0;
  std::uint64_t least = 0;      // how often, by value and batch, StatisticBlock::least counted
  std::uint64_t gradients = 0;  // since the source was made, also of what is not averaged
};

class GradientSource {
 public:
  virtual ~GradientSource() = default;

  // d, the length of the parameter vector.
  virtual std::size_t dimension() const = 0;
  // The length of a row.
  virtual std::size_t features() const = 0;
  virtual std::unique_ptr<Workspace> make_workspace() const = 0;
  // What rows are to give: labels below this; 0: values.
  static constexpr std::size_t kAnyLabel =
      ~std::size_t{0};  // what they mean the source alone knows
  virtual std::size_t classes() const { return kAnyLabel; }
  // Whether rows are classified, so that there is an accuracy.
  virtual bool classifies() const { return true; }
  // Whether rows may have weights.
  virtual bool takes_weights() const { return true; }
  // Whether it has one output, the logit of label 1 among two labels.
  virtual bool gives_logits() const { return false; }
  // What a worker's thread holds for as long as it works for this source.
  virtual std::shared_ptr<void> attach() const { return nullptr; }
  // Where the variables that theta is made of end, in order; empty: it is one.
  virtual std::vector<std::size_t> block_ends() const { return {}; }
  // The tables whose rows batches bring (BatchView::tables), and of each feature that is ids its
  // table among them. gradient() adds the rows' gradients, of the same mean loss, to theirs.
  virtual std::vector<TableShape> tables() const { return {}; }
  virtual std::vector<std::size_t> features_of_tables() const { return {}; }
  // What it normalises by: in gradient() a batch's own (BatchView::own_statistics), in evaluate()
  // what the batch is given (BatchView::statistics). No rule ever sees them.
  virtual std::vector<StatisticBlock> statistics() const { return {}; }
  // What these run to by now, for whoever evaluates; nothing: it does not average them. Any thread
  // may ask, while others compute gradients.
  virtual std::optional<RunningStatistics> running() const { return std::nullopt; }

  // Writes the gradient of the batch's mean loss (the sum of its rows' weighted losses over their
  // number) at theta to gradient[0..d) (overwriting it) and returns that loss. Takes no lock, and
  // allocates nothing but where there are statistics and no batch was as large before. Where
  // `cancel` turns true it may return at once; the gradient is then worthless and the caller drops
  // it.
  virtual float gradient(const float* theta, const BatchView& batch, float* gradient,
                         Workspace& workspace, const std::atomic<bool>& cancel) const = 0;

  // Whether update() can stand for gradient() and this rule.
  virtual bool updates_in_place(const Rule&) const { return false; }
  // The rule applied to sparse rows, mini-batch after mini-batch, where the parameters lie: only
  // those that a batch touches are read or written. Other threads may do the same meanwhile. The
  // result is not finite where something that was computed is not.
  virtual float update(const SparseUpdate&, const BatchView&, Workspace&) const { return 0; }
  // The penalty λ/2 |w|² on what is not intercept, which update() leaves to its caller.
  virtual double l2() const { return 0; }
  // The largest second derivative of a row's loss with respect to an output.
  virtual double curvature() const { return 0; }

  // Weighted loss and number of rows classified right at theta, over the batch (any size).
  virtual Evaluation evaluate(const float* theta, const BatchView& batch,
                              Workspace& workspace) const = 0;
};

}  // namespace leashed
