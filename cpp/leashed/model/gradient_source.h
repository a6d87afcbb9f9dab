// The gradient source contract (docs/architecture.md, decision 8): where gradients come from
// is one choice among the others, so the engine knows a model only through this interface.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "leashed/data/batch_view.h"
#include "leashed/data/head_score.h"

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
  // Of the rows together, where they have logits: of each label.
  std::vector<HeadScore> heads = {};
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

// What a source is, apart from what it computes.
struct ModelDescription {
  static constexpr std::size_t kAnyLabel =
      ~std::size_t{0};  // what they mean the source alone knows

  std::size_t dimension = 0;        // d, the length of the parameter vector
  std::size_t features = 0;         // the length of a row
  std::size_t classes = kAnyLabel;  // what rows are to give: labels below this; 0: values
  std::size_t values = 1;           // so many, where they give any
  bool classifies = true;           // whether rows are classified, so that there is an accuracy
  bool takes_weights = true;        // whether rows may have weights
  // Whether its outputs, one or as many as rows give values, are logits, each of label 1 of two.
  bool gives_logits = false;
  // Where the variables that theta is made of end, in order; empty: it is one.
  std::vector<std::size_t> block_ends = {};
  // The tables whose rows batches bring (BatchView::tables), and of each feature that is ids its
  // table among them. gradient() adds the rows' gradients, of the same mean loss, to theirs.
  std::vector<TableShape> tables = {};
  std::vector<std::size_t> features_of_tables = {};
  // What it normalises by: in gradient() a batch's own (BatchView::own_statistics), in evaluate()
  // what the batch is given (BatchView::statistics). No rule ever sees them.
  std::vector<StatisticBlock> statistics = {};
  // The penalty λ/2 |w|² on what is not intercept, which updates in place leave to their caller.
  double l2 = 0;
  // The largest second derivative of a row's loss with respect to an output.
  double curvature = 0;
};

// Rules applied to sparse rows, mini-batch after mini-batch, where the parameters lie.
class InPlaceUpdates {
 public:
  virtual ~InPlaceUpdates() = default;

  // Whether update() can stand for gradient() and this rule.
  virtual bool takes(const Rule& rule) const = 0;
  // Only the parameters that a batch touches are read or written. Other threads may do the same
  // meanwhile. The result is not finite where something that was computed is not.
  virtual float update(const SparseUpdate& update, const BatchView& batches,
                       Workspace& workspace) const = 0;
};

class GradientSource {
 public:
  virtual ~GradientSource() = default;

  const ModelDescription& described() const { return described_; }
  std::size_t dimension() const { return described_.dimension; }
  std::size_t features() const { return described_.features; }
  std::size_t classes() const { return described_.classes; }
  std::size_t values() const { return described_.values; }
  bool classifies() const { return described_.classifies; }
  bool takes_weights() const { return described_.takes_weights; }
  bool gives_logits() const { return described_.gives_logits; }
  const std::vector<std::size_t>& block_ends() const { return described_.block_ends; }
  const std::vector<TableShape>& tables() const { return described_.tables; }
  const std::vector<std::size_t>& features_of_tables() const {
    return described_.features_of_tables;
  }
  const std::vector<StatisticBlock>& statistics() const { return described_.statistics; }

  virtual std::unique_ptr<Workspace> make_workspace() const = 0;
  // What a worker's thread holds for as long as it works for this source.
  virtual std::shared_ptr<void> attach() const { return nullptr; }
  // What its statistics run to by now, for whoever evaluates; nothing: it does not average them.
  // Any thread may ask, while others compute gradients.
  virtual std::optional<RunningStatistics> running() const { return std::nullopt; }
  // What it standardises numbers by that are evaluated now, all of an evaluation by the same; null:
  // it takes them as they are. From any thread likewise.
  virtual std::shared_ptr<const NumberScales> scales() const { return nullptr; }

  // Writes the gradient of the batch's mean loss (the sum of its rows' weighted losses over their
  // number) at theta to gradient[0..d) (overwriting it) and returns that loss. Takes no lock, and
  // allocates nothing but where there are statistics, or examples are compared with each other, and
  // no batch was as large before: once, where batches are of one size. Where `cancel` turns true it
  // may return at once; the gradient is then worthless and the caller drops it.
  virtual float gradient(const float* theta, const BatchView& batch, float* gradient,
                         Workspace& workspace, const std::atomic<bool>& cancel) const = 0;
  // Where it can do without gradients.
  virtual const InPlaceUpdates* in_place() const { return nullptr; }
  // Weighted loss and number of rows classified right at theta, over the batch (any size).
  virtual Evaluation evaluate(const float* theta, const BatchView& batch,
                              Workspace& workspace) const = 0;

 protected:
  // In the constructor: it stays so.
  void describe(ModelDescription description) { described_ = std::move(description); }

 private:
  ModelDescription described_;
};

}  // namespace leashed
