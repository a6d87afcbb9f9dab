// The logarithm of the probability of what an example chose, among what all examples of the batch
// chose, for the loss in_batch: s_i − log Σ_j e^(s_j) over the batch's rows that are not the chosen
// one's, and that one; s_j = u · row_j − log q(id_j), q being how often an id is expected to be
// chosen (Yi et al., "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item
// Recommendations", 2019, eqs. 4 and 5).
//
// Rows are copied once a batch, for both ways and to lie side by side, as in sampled_logits.cc.
#include <algorithm>

#include "leashed/base/aligned.h"
#include "leashed/base/error.h"
#include "leashed/data/negatives.h"
#include "leashed/graph/blocks/candidates.h"
#include "leashed/graph/graph_planner.h"
#include "leashed/kernels/candidates.h"
#include "leashed/kernels/embedding.h"
#include "leashed/model/loss.h"
#include "leashed/model/row_stride.h"

namespace leashed {
namespace {

struct InBatch {
  std::size_t table, chosen;  // the feature that is ids
  std::size_t dim;
  Negatives frequencies;  // of one id
};

class InBatchBlock final : public Block {
 public:
  InBatchBlock(const InBatch& what, const Ports& ports)
      : what_(what),
        ld_(row_stride(what.dim)),
        max_rows_(ports.max_rows),
        in_(ports.inputs[0]),
        out_(ports.output),
        dense_(dense_kernels(ports.isa)),
        embedding_(embedding_kernels(ports.isa)),
        kernels_(candidate_kernels(ports.isa)),
        softmax_(find_loss("sampled_softmax", 2, ports.isa)) {
    grow(ports.max_rows);
  }

  void forward(const MicroBatch& step) override {
    if (step.first == 0) fetch(step.batch);
    const std::size_t all = step.batch.size, ld = row_stride(all + 1);
    const std::uint32_t* const places = step.batch.places[what_.chosen];
    dense_.gemm({.m = step.count,
                 .n = all,
                 .k = what_.dim,
                 .a = in_.values,
                 .a_row = in_.stride,
                 .b = transposed_.data(),
                 .ldb = row_stride(all),
                 .c = residuals_.data(),
                 .ldc = ld,
                 .bias = less_.data(),
                 .ahead = &step.ahead},
                scratch_.data());
    for (std::size_t i = 0; i < step.count; ++i) {
      float* const row = residuals_.data() + i * ld;
      row[all] = row[step.first + i];
    }
    kernels_.hide(places, all, places + step.first, step.count, kHidden, residuals_.data(), ld);
    for (std::size_t i = 0; i < step.count; ++i) {
      float* const row = residuals_.data() + i * ld;
      const double loss = softmax_.residuals(row, row, 1, all + 1, ld, Targets(), 1);
      out_.values[i * out_.stride] = static_cast<float>(-loss);
    }
  }

  void backward(const MicroBatch& step, float*, bool) override {
    const std::size_t all = step.batch.size, ld = row_stride(all + 1);
    for (std::size_t i = 0; i < step.count; ++i) {
      float* const row = residuals_.data() + i * ld;
      const float d = -out_.gradient[i * out_.stride];
      for (std::size_t j = 0; j <= all; ++j) row[j] *= d;
      row[step.first + i] = row[all];  // it was hidden, and is the chosen one's
    }
    if (in_.needed) {
      dense_.gemm({.m = step.count,
                   .n = what_.dim,
                   .k = all,
                   .a = residuals_.data(),
                   .a_row = ld,
                   .b = rows_.data(),
                   .ldb = ld_,
                   .c = in_.gradient,
                   .ldc = in_.stride,
                   .accumulate = in_.adds,
                   .ahead = &step.ahead},
                  scratch_.data());
    }
    const TableRows& table = step.batch.tables[what_.table];
    if (!table.gradient) return;
    dense_.gemm({.m = all,
                 .n = what_.dim,
                 .k = step.count,
                 .a = residuals_.data(),
                 .a_row = 1,
                 .a_col = ld,
                 .b = in_.values,
                 .ldb = in_.stride,
                 .c = d_rows_.data(),
                 .ldc = ld_,
                 .accumulate = step.first > 0,
                 .ahead = &step.ahead},
                scratch_.data());
    if (step.first + step.count < all) return;
    embedding_.scatter(chosen(step.batch), d_rows_.data(), ld_, table.gradient, table.stride);
  }

 private:
  PooledRows chosen(const BatchView& batch) const {
    return {Pooling::sum, what_.dim, 1, batch.columns[what_.chosen], batch.places[what_.chosen], 0,
            batch.size,   nullptr};
  }

  void fetch(const BatchView& batch) {
    if (!TableFeature{what_.chosen, what_.table}.is_row(batch)) {
      throw Error("the feature that tells what was chosen must have one id a row, no weight");
    }
    grow(batch.size);
    for (std::size_t j = 0; j < batch.size; ++j) {
      const std::uint64_t id = batch.columns[what_.chosen].ids[j];
      less_[j] = static_cast<float>(-what_.frequencies.log_expected(id));
    }
    embedding_.pool_racy(chosen(batch), batch.tables[what_.table].values, rows_.data(), ld_);
    dense_.transpose(rows_.data(), batch.size, what_.dim, ld_, transposed_.data(),
                     row_stride(batch.size));
  }

  // For batches of so many examples.
  void grow(std::size_t examples) {
    if (examples <= examples_) return;
    examples_ = examples;
    rows_ = AlignedArray<float>(examples * ld_);
    d_rows_ = AlignedArray<float>(examples * ld_);
    transposed_ = AlignedArray<float>(what_.dim * row_stride(examples));
    less_ = AlignedArray<float>(examples);
    residuals_ = AlignedArray<float>(max_rows_ * row_stride(examples + 1));
    scratch_ = AlignedArray<float>(dense_.gemm_scratch(std::max({max_rows_, examples, what_.dim})));
  }

  const InBatch what_;
  const std::size_t ld_, max_rows_;
  const InputWindow in_;
  const Window out_;
  const DenseKernels& dense_;
  const EmbeddingKernels& embedding_;
  const CandidateKernels& kernels_;
  const Loss& softmax_;
  std::size_t examples_ = 0;
  AlignedArray<float> rows_, d_rows_, transposed_, less_;  // by example of the batch
  AlignedArray<float> residuals_;                          // of the micro-batch, of each of these
  AlignedArray<float> scratch_;
};

}  // namespace

void plan_in_batch_node(const Node& node, GraphPlanner& graph) {
  graph.takes(1, 1);
  GraphPlan& plan = graph.plan();
  InBatch what;
  what.table = table_of_items(graph);
  what.dim = plan.tables[what.table].dim;
  what.frequencies.count = 1;
  what.frequencies.below = graph.size("below", 1);
  what.frequencies.sampling =
      find_choice(kSamplings, "frequencies", node.kind.part("frequencies").name);
  what.chosen = plan.features_of_tables.size();
  plan.features_of_tables.push_back(what.table);
  graph.becomes(plan_of<InBatchBlock>(what), 1, true);
}

}  // namespace leashed
