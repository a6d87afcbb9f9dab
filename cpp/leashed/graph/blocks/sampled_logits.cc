// The logits of ids drawn for the whole batch (negatives.h), u · row − log(how often the id is
// expected among them), and last that of what an example chose, u · row, for the loss
// sampled_softmax (Covington et al., "Deep Neural Networks for YouTube Recommendations", 2016).
// Where one that was drawn is the one chosen, its logit is as good as −∞. So the sum of e to the
// logits is on average the one over all ids (importance sampling: Bengio and Senécal, 2008). Losses
// that compare pairs, such as bpr, take them without that correction.
//
// Rows are copied once a batch, for both ways and to lie side by side: then nearly all of the work
// is three products of matrices.
#include <algorithm>

#include "leashed/base/aligned.h"
#include "leashed/base/error.h"
#include "leashed/data/negatives.h"
#include "leashed/graph/blocks/candidates.h"
#include "leashed/graph/graph_planner.h"
#include "leashed/kernels/candidates.h"
#include "leashed/kernels/embedding.h"
#include "leashed/model/row_stride.h"

namespace leashed {
namespace {

struct Sampled {
  std::size_t table, chosen, drawn;  // the features that are ids
  std::size_t dim;
  Negatives negatives;
  bool corrects;
};

class SampledLogitsBlock final : public Block {
 public:
  SampledLogitsBlock(const Sampled& what, const Ports& ports)
      : what_(what),
        count_(what.negatives.count),
        ld_(row_stride(what.dim)),
        in_(ports.inputs[0]),
        out_(ports.output),
        dense_(dense_kernels(ports.isa)),
        embedding_(embedding_kernels(ports.isa)),
        kernels_(candidate_kernels(ports.isa)),
        negatives_(count_ * ld_),
        d_negatives_(count_ * ld_),
        transposed_(what.dim * row_stride(count_)),
        less_(count_),
        chosen_(ports.max_rows * ld_),
        d_chosen_(ports.max_rows * ld_),
        scratch_(dense_.gemm_scratch(std::max({ports.max_rows, count_, what.dim}))) {}

  void forward(const MicroBatch& step) override {
    if (step.first == 0) fetch_drawn(step.batch);
    const TableRows& table = step.batch.tables[what_.table];
    embedding_.pool_racy(rows(step), table.values, chosen_.data(), ld_);
    dense_.gemm({.m = step.count,
                 .n = count_,
                 .k = what_.dim,
                 .a = in_.values,
                 .a_row = in_.stride,
                 .b = transposed_.data(),
                 .ldb = row_stride(count_),
                 .c = out_.values,
                 .ldc = out_.stride,
                 .bias = less_.data(),
                 .ahead = &step.ahead},
                scratch_.data());
    kernels_.hide(step.batch.places[what_.drawn], count_,
                  step.batch.places[what_.chosen] + step.first, step.count, kHidden, out_.values,
                  out_.stride);
    kernels_.score(in_.values, in_.stride, chosen_.data(), ld_, step.count, what_.dim,
                   out_.values + count_, out_.stride);
  }

  void backward(const MicroBatch& step, float*, bool) override {
    if (in_.needed) {
      dense_.gemm({.m = step.count,
                   .n = what_.dim,
                   .k = count_,
                   .a = out_.gradient,
                   .a_row = out_.stride,
                   .b = negatives_.data(),
                   .ldb = ld_,
                   .c = in_.gradient,
                   .ldc = in_.stride,
                   .accumulate = in_.adds,
                   .ahead = &step.ahead},
                  scratch_.data());
    }
    kernels_.score_backward({out_.gradient + count_, in_.values, chosen_.data(), out_.stride,
                             in_.stride, ld_, step.count, what_.dim,
                             in_.needed ? in_.gradient : nullptr, d_chosen_.data()});
    const TableRows& table = step.batch.tables[what_.table];
    if (!table.gradient) return;
    embedding_.scatter(rows(step), d_chosen_.data(), ld_, table.gradient, table.stride);
    dense_.gemm({.m = count_,
                 .n = what_.dim,
                 .k = step.count,
                 .a = out_.gradient,
                 .a_row = 1,
                 .a_col = out_.stride,
                 .b = in_.values,
                 .ldb = in_.stride,
                 .c = d_negatives_.data(),
                 .ldc = ld_,
                 .accumulate = step.first > 0,
                 .ahead = &step.ahead},
                scratch_.data());
    if (step.first + step.count < step.batch.size) return;
    embedding_.scatter(drawn_rows(step.batch), d_negatives_.data(), ld_, table.gradient,
                       table.stride);
  }

 private:
  PooledRows rows(const MicroBatch& step) const {
    return {Pooling::sum,
            what_.dim,
            1,
            step.batch.columns[what_.chosen],
            step.batch.places[what_.chosen],
            step.first,
            step.count,
            nullptr};
  }
  // Of all examples together, one after another.
  PooledRows drawn_rows(const BatchView& batch) const {
    return {
        Pooling::sum, what_.dim, 1, {batch.columns[what_.drawn].ids}, batch.places[what_.drawn], 0,
        count_,       nullptr};
  }

  void fetch_drawn(const BatchView& batch) {
    const IdColumn& drawn = batch.columns[what_.drawn];
    if (!drawn.offsets || drawn.offsets[batch.size] != count_ || drawn.weights) {
      throw Error("a batch must have " + std::to_string(count_) + " negatives, without weights");
    }
    if (!TableFeature{what_.chosen, what_.table}.is_row(batch)) {
      throw Error("the feature that tells what was chosen must have one id a row, no weight");
    }
    for (std::size_t j = 0; j < count_; ++j) {
      less_[j] =
          what_.corrects ? static_cast<float>(-what_.negatives.log_expected(drawn.ids[j])) : 0;
    }
    embedding_.pool_racy(drawn_rows(batch), batch.tables[what_.table].values, negatives_.data(),
                         ld_);
    dense_.transpose(negatives_.data(), count_, what_.dim, ld_, transposed_.data(),
                     row_stride(count_));
  }

  const Sampled what_;
  const std::size_t count_, ld_;
  const InputWindow in_;
  const Window out_;
  const DenseKernels& dense_;
  const EmbeddingKernels& embedding_;
  const CandidateKernels& kernels_;
  AlignedArray<float> negatives_, d_negatives_, transposed_, less_;  // by drawn id
  AlignedArray<float> chosen_, d_chosen_;                            // by example
  AlignedArray<float> scratch_;
};

}  // namespace

void plan_sampled_logits_node(const Node& node, GraphPlanner& graph) {
  graph.takes(1, 1);
  GraphPlan& plan = graph.plan();
  Sampled what;
  what.table = table_of_items(graph);
  what.dim = plan.tables[what.table].dim;
  what.negatives.count = graph.size("negatives", 1);
  what.negatives.below = graph.size("below", 1);
  what.negatives.sampling = find_choice(kSamplings, "sampling", node.kind.part("sampling").name);
  what.corrects = node.kind.value("corrects", 1) != 0;
  what.chosen = plan.features_of_tables.size();
  what.drawn = what.chosen + 1;
  plan.features_of_tables.insert(plan.features_of_tables.end(), {what.table, what.table});
  const std::size_t outputs = graph.values(what.negatives.count + 1);
  graph.count(static_cast<double>(outputs) * static_cast<double>(what.dim), 2);
  graph.becomes(plan_of<SampledLogitsBlock>(what), outputs, true);
}

}  // namespace leashed
