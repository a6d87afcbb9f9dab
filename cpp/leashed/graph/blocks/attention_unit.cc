// The activation unit of DIN (Zhou et al., "Deep Interest Network for Click-Through Rate
// Prediction", 2018, section 4.3): for each step k of a sequence, an MLP of [q, k, q − k, q∘k]
// whose one output is the step's score; as it is, or after a softmax over the steps. Zeros behind
// the sequence. Parameters: of each layer, the last with one output, a weight [inputs, outputs] and
// a bias [outputs].
//
// All steps that there are, of all examples, are the rows of one matrix: what is not there costs
// nothing. Of the first layer what depends on q alone is computed once an example
// (kernels/attention.h).
#include "leashed/base/aligned.h"
#include "leashed/base/extent.h"
#include "leashed/graph/blocks/steps.h"
#include "leashed/kernels/attention.h"
#include "leashed/model/dense_chain.h"
#include "leashed/model/row_stride.h"

namespace leashed {
namespace {

struct Unit {
  Sequence keys;
  bool softmax;
  DenseStage first;               // of [q, k, q − k, q∘k]
  std::vector<DenseStage> above;  // the last gives the score
};

class UnitBlock final : public Block {
 public:
  UnitBlock(const Unit& own, const Ports& ports)
      : own_(own),
        dim_(own.keys.dim),
        hidden_(own.first.outputs),
        query_(ports.inputs[0]),
        keys_(ports.inputs[1]),
        out_(ports.output),
        dense_(dense_kernels(ports.isa)),
        activation_(activation_kernels(ports.isa)),
        kernels_(attention_kernels(ports.isa)),
        most_(ports.max_rows * own.keys.length),
        above_(own.above, true, ports.isa, most_),
        begins_(ports.max_rows + 1),
        pairs_(most_ * row_stride(2 * dim_)),
        z_(most_ * row_stride(hidden_)),
        dz_(most_ * row_stride(hidden_)),
        of_query_(ports.max_rows * row_stride(hidden_)),
        scores_(most_),
        d_scores_(most_),
        folded_(3 * dim_ * hidden_),
        d_folded_(3 * dim_ * hidden_),
        transposed_pairs_(hidden_ * row_stride(2 * dim_)),
        transposed_query_(hidden_ * row_stride(dim_)),
        scratch_(dense_.gemm_scratch(std::max({most_, ports.max_rows, 2 * dim_, hidden_}))) {}

  void forward(const MicroBatch& step) override {
    begins_[0] = 0;
    for (std::size_t row = 0; row < step.count; ++row) {
      const std::size_t steps = own_.keys.steps(step.batch, step.first + row);
      kernels_.pairs(query_.values + row * query_.stride, keys_.values + row * keys_.stride, steps,
                     dim_, pairs_.data() + begins_[row] * row_stride(2 * dim_),
                     row_stride(2 * dim_));
      begins_[row + 1] = begins_[row] + steps;
    }
    const std::size_t all = begins_[step.count], stride = row_stride(hidden_);
    kernels_.fold(step.theta + own_.first.weight, dim_, hidden_, folded_.data());
    dense_.gemm({.m = step.count,
                 .n = hidden_,
                 .k = dim_,
                 .a = query_.values,
                 .a_row = query_.stride,
                 .b = folded_query(folded_),
                 .ldb = hidden_,
                 .c = of_query_.data(),
                 .ldc = stride,
                 .bias = step.theta + own_.first.bias},
                scratch_.data());
    for (std::size_t row = 0; row < step.count; ++row) {
      for (std::size_t j = begins_[row]; j < begins_[row + 1]; ++j) {
        std::copy_n(of_query_.data() + row * stride, hidden_, z_.data() + j * stride);
      }
    }
    dense_.gemm({.m = all,
                 .n = hidden_,
                 .k = 2 * dim_,
                 .a = pairs_.data(),
                 .a_row = row_stride(2 * dim_),
                 .b = folded_.data(),
                 .ldb = hidden_,
                 .c = z_.data(),
                 .ldc = stride,
                 .accumulate = true,
                 .relu = true,
                 .ahead = &step.ahead},
                scratch_.data());
    above_.forward(step.theta, all, z_.data(), stride, scores_.data(), 1, step.ahead);
    for (std::size_t row = 0; row < step.count; ++row) {
      const std::size_t steps = begins_[row + 1] - begins_[row];
      const float* scores = scores_.data() + begins_[row];
      float* out = out_.values + row * out_.stride;
      if (own_.softmax) {
        kernels_.softmax(scores, steps, out);
      } else {
        std::copy_n(scores, steps, out);
      }
      std::fill(out + steps, out + own_.keys.length, 0.0f);
    }
  }

  void prepare_backward(const float* theta) override {
    above_.prepare_backward(theta);
    kernels_.fold(theta + own_.first.weight, dim_, hidden_, folded_.data());
    dense_.transpose(folded_.data(), 2 * dim_, hidden_, hidden_, transposed_pairs_.data(),
                     row_stride(2 * dim_));
    dense_.transpose(folded_query(folded_), dim_, hidden_, hidden_, transposed_query_.data(),
                     row_stride(dim_));
  }

  void backward(const MicroBatch& step, float* gradient, bool accumulate) override {
    const std::size_t all = begins_[step.count], stride = row_stride(hidden_);
    for (std::size_t row = 0; row < step.count; ++row) {
      const std::size_t steps = begins_[row + 1] - begins_[row], at = row * out_.stride;
      float* d_scores = d_scores_.data() + begins_[row];
      if (own_.softmax) {
        kernels_.softmax_backward(out_.values + at, out_.gradient + at, steps, d_scores);
      } else {
        std::copy_n(out_.gradient + at, steps, d_scores);
      }
    }
    above_.backward({.rows = all,
                     .in = z_.data(),
                     .in_stride = stride,
                     .out = scores_.data(),
                     .out_stride = 1,
                     .d_out = d_scores_.data(),
                     .d_in = dz_.data(),
                     .adds_d_in = false,
                     .gradient = gradient,
                     .accumulate = accumulate},
                    step.ahead);
    for (std::size_t j = 0; j < all; ++j) {
      activation_.relu.backward(z_.data() + j * stride, dz_.data() + j * stride, hidden_);
    }
    for (std::size_t row = 0; row < step.count; ++row) {
      dense_.column_sums(dz_.data() + begins_[row] * stride, begins_[row + 1] - begins_[row],
                         hidden_, stride, of_query_.data() + row * stride, false);
    }
    first_layer_backward(step, all, gradient, accumulate);
    inputs_backward(step, all);
  }

 private:
  // What is for q alone (kernels/attention.h).
  float* folded_query(AlignedArray<float>& folded) { return folded.data() + 2 * dim_ * hidden_; }

  // of_query_ has the gradient of the part that depends on q alone.
  void first_layer_backward(const MicroBatch& step, std::size_t all, float* gradient,
                            bool accumulate) {
    const std::size_t stride = row_stride(hidden_);
    dense_.gemm({.m = 2 * dim_,
                 .n = hidden_,
                 .k = all,
                 .a = pairs_.data(),
                 .a_row = 1,
                 .a_col = row_stride(2 * dim_),
                 .b = dz_.data(),
                 .ldb = stride,
                 .c = d_folded_.data(),
                 .ldc = hidden_,
                 .ahead = &step.ahead},
                scratch_.data());
    dense_.gemm({.m = dim_,
                 .n = hidden_,
                 .k = step.count,
                 .a = query_.values,
                 .a_row = 1,
                 .a_col = query_.stride,
                 .b = of_query_.data(),
                 .ldb = stride,
                 .c = folded_query(d_folded_),
                 .ldc = hidden_},
                scratch_.data());
    kernels_.unfold(d_folded_.data(), dim_, hidden_, gradient + own_.first.weight, accumulate);
    dense_.column_sums(of_query_.data(), step.count, hidden_, stride, gradient + own_.first.bias,
                       accumulate);
  }

  void inputs_backward(const MicroBatch& step, std::size_t all) {
    if (!query_.needed && !keys_.needed) return;
    const std::size_t stride = row_stride(hidden_), ld = row_stride(2 * dim_);
    if (query_.needed) {
      dense_.gemm({.m = step.count,
                   .n = dim_,
                   .k = hidden_,
                   .a = of_query_.data(),
                   .a_row = stride,
                   .b = transposed_query_.data(),
                   .ldb = row_stride(dim_),
                   .c = query_.gradient,
                   .ldc = query_.stride,
                   .accumulate = query_.adds},
                  scratch_.data());
    }
    // Nobody reads the pairs any more.
    dense_.gemm({.m = all,
                 .n = 2 * dim_,
                 .k = hidden_,
                 .a = dz_.data(),
                 .a_row = stride,
                 .b = transposed_pairs_.data(),
                 .ldb = ld,
                 .c = pairs_.data(),
                 .ldc = ld,
                 .ahead = &step.ahead},
                scratch_.data());
    for (std::size_t row = 0; row < step.count; ++row) {
      const std::size_t steps = begins_[row + 1] - begins_[row], at = row * keys_.stride;
      kernels_.pairs_backward(
          {.d_pairs = pairs_.data() + begins_[row] * ld,
           .q = query_.values + row * query_.stride,
           .keys = keys_.values + at,
           .ld = ld,
           .count = steps,
           .dim = dim_,
           .d_q = query_.needed ? query_.gradient + row * query_.stride : nullptr,
           .d_keys = keys_.needed ? keys_.gradient + at : nullptr,
           .adds_d_keys = keys_.adds});
      if (keys_.needed && !keys_.adds) clear_behind(keys_.gradient + at, steps, own_.keys);
    }
  }

  const Unit own_;
  const std::size_t dim_, hidden_;
  const InputWindow query_, keys_;
  const Window out_;
  const DenseKernels& dense_;
  const ActivationKernels& activation_;
  const AttentionKernels& kernels_;
  const std::size_t most_;  // steps of a micro-batch
  DenseChain above_;
  std::vector<std::size_t> begins_;     // of each example its first row of what follows
  AlignedArray<float> pairs_, z_, dz_;  // of each step [k, q∘k], the first layer and its gradient
  AlignedArray<float> of_query_;        // of each example
  AlignedArray<float> scores_, d_scores_;
  AlignedArray<float> folded_, d_folded_, transposed_pairs_, transposed_query_, scratch_;
};

}  // namespace

void plan_attention_unit_node(const Node& node, GraphPlanner& graph) {
  graph.takes(2, 2);
  Unit own{attended(graph), node.kind.value("softmax", 0) != 0, {}, {}};
  std::vector<double> widths = node.kind.table("hidden");
  if (widths.empty()) graph.fail("hidden must have at least one width");
  widths.push_back(1);
  std::size_t inputs = graph.values(extent({4, own.keys.dim}));
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const std::size_t outputs = graph.whole("hidden", widths[i], 1);
    const std::string name = std::to_string(i);
    DenseStage stage{};
    stage.inputs = inputs;
    stage.outputs = outputs;
    stage.weight = graph.parameter((name + ".weight").c_str(), {inputs, outputs}, inputs, outputs);
    stage.bias = graph.parameter((name + ".bias").c_str(), {outputs}, inputs, outputs);
    stage.trains_bias = true;
    if (i + 1 < widths.size()) stage.activation = &ActivationKernels::relu;
    // (What is folded of the first layer is half of it.)
    graph.count(static_cast<double>(own.keys.length) * static_cast<double>(outputs) *
                    static_cast<double>(i == 0 ? inputs / 2 : inputs),
                2);
    if (i == 0) {
      own.first = stage;
    } else {
      own.above.push_back(stage);
    }
    inputs = outputs;
  }
  graph.values(extent({own.keys.length, own.first.outputs}));
  const Sequence scores{own.keys.feature, own.keys.length, 1};
  graph.becomes(plan_of<UnitBlock>(std::move(own)), scores.length, true);
  graph.gives(scores);
}

}  // namespace leashed
