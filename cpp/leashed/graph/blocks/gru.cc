// A gated recurrent unit over a sequence, whose states are the sequence it gives; and one whose
// update gate is multiplied by the step's attention, whose last state it gives (DIEN's GRU and
// AUGRU, kernels/gated.h; zeros of an example without steps). Parameters: W [dim, 3 units], U
// [units, 3 units], each W_u, W_r and W_c side by side, then b [3 units].
//
// Examples go by their lengths, the longest first, so that those that still have a step are the
// first rows: what is not there costs nothing. The rows of one step lie behind those of the one
// before, and what needs no state is one product over all of them.
#include <numeric>

#include "leashed/base/aligned.h"
#include "leashed/base/extent.h"
#include "leashed/graph/blocks/steps.h"
#include "leashed/kernels/gated.h"
#include "leashed/model/row_stride.h"

namespace leashed {
namespace {

struct Recurrent {
  Sequence in;
  std::size_t units;
  std::size_t weight, recurrent, bias;  // offsets in theta
  bool attends;                         // and gives the last state alone
};

class RecurrentBlock final : public Block {
 public:
  RecurrentBlock(const Recurrent& own, const Ports& ports)
      : own_(own),
        gates_width_(3 * own.units),
        in_(ports.inputs[0]),
        scores_(ports.inputs.back()),
        out_(ports.output),
        dense_(dense_kernels(ports.isa)),
        kernels_(gated_kernels(ports.isa)),
        rows_(ports.max_rows),
        most_(ports.max_rows * own.in.length),
        steps_(rows_),
        order_(rows_),
        begins_(own.in.length + 2),
        x_(most_ * row_stride(own.in.dim)),
        gates_(most_ * row_stride(gates_width_)),
        hidden_(most_ * row_stride(gates_width_)),
        before_((most_ + rows_) * row_stride(own.units)),
        d_state_(rows_ * row_stride(own.units)),
        transposed_weight_(gates_width_ * row_stride(own.in.dim)),
        transposed_recurrent_(gates_width_ * row_stride(own.units)),
        scratch_(dense_.gemm_scratch(std::max({most_, own.in.dim, gates_width_}))) {}

  void forward(const MicroBatch& step) override {
    line_up(step);
    multiply({.m = all(),
              .n = gates_width_,
              .k = own_.in.dim,
              .a = x_.data(),
              .a_row = row_stride(own_.in.dim),
              .b = step.theta + own_.weight,
              .ldb = gates_width_,
              .c = gates_.data(),
              .ldc = row_stride(gates_width_),
              .bias = step.theta + own_.bias,
              .ahead = &step.ahead});
    std::fill_n(before_.data(), active(0) * row_stride(own_.units), 0.0f);
    for (std::size_t t = 0; t < last_; ++t) {
      multiply({.m = active(t),
                .n = gates_width_,
                .k = own_.units,
                .a = before(t),
                .a_row = row_stride(own_.units),
                .b = step.theta + own_.recurrent,
                .ldb = gates_width_,
                .c = hidden(t),
                .ldc = row_stride(gates_width_)});
      for (std::size_t i = 0; i < active(t); ++i) {
        // Those of examples that end here lie where the step after the next will write.
        float* after = before(t + 1) + i * row_stride(own_.units);
        const std::size_t at = i * row_stride(gates_width_);
        kernels_.forward(gates(t) + at, hidden(t) + at, before(t) + i * row_stride(own_.units),
                         attention(t, i), own_.units, after);
        if (float* out = output(out_.values, t, i)) std::copy_n(after, own_.units, out);
      }
    }
    for (std::size_t i = 0; i < step.count; ++i) {
      float* out = out_.values + order_[i] * out_.stride;
      if (own_.attends) {
        if (steps_[order_[i]] == 0) std::fill_n(out, own_.units, 0.0f);
      } else {
        std::fill(out + steps_[order_[i]] * own_.units, out + own_.in.length * own_.units, 0.0f);
      }
    }
  }

  void prepare_backward(const float* theta) override {
    dense_.transpose(theta + own_.recurrent, own_.units, gates_width_, gates_width_,
                     transposed_recurrent_.data(), row_stride(own_.units));
    if (!in_.needed) return;
    dense_.transpose(theta + own_.weight, own_.in.dim, gates_width_, gates_width_,
                     transposed_weight_.data(), row_stride(own_.in.dim));
  }

  void backward(const MicroBatch& step, float* gradient, bool accumulate) override {
    clear_scores(step);
    for (std::size_t t = last_; t-- > 0;) {
      for (std::size_t i = 0; i < active(t); ++i) {
        float* d_state = d_state_.data() + i * row_stride(own_.units);
        if (i >= active(t + 1)) std::fill_n(d_state, own_.units, 0.0f);
        if (const float* d_out = output(out_.gradient, t, i)) {
          for (std::size_t k = 0; k < own_.units; ++k) d_state[k] += d_out[k];
        }
        const std::size_t at = i * row_stride(gates_width_);
        const float d_attention =
            kernels_.backward(gates(t) + at, hidden(t) + at, before(t) + i * row_stride(own_.units),
                              attention(t, i), own_.units, d_state);
        if (own_.attends && scores_.needed) {
          scores_.gradient[order_[i] * scores_.stride + t] += d_attention;
        }
      }
      if (t == 0) break;
      multiply({.m = active(t),
                .n = own_.units,
                .k = gates_width_,
                .a = hidden(t),
                .a_row = row_stride(gates_width_),
                .b = transposed_recurrent_.data(),
                .ldb = row_stride(own_.units),
                .c = d_state_.data(),
                .ldc = row_stride(own_.units),
                .accumulate = true});
    }
    parameters_backward(step, gradient, accumulate);
    if (in_.needed) input_backward(step);
  }

 private:
  void multiply(const Gemm& product) { dense_.gemm(product, scratch_.data()); }

  // The input's steps, one after another in the order of this block.
  void line_up(const MicroBatch& step) {
    for (std::size_t row = 0; row < step.count; ++row) {
      steps_[row] = own_.in.steps(step.batch, step.first + row);
    }
    const auto end = order_.begin() + static_cast<std::ptrdiff_t>(step.count);
    std::iota(order_.begin(), end, 0u);
    std::sort(order_.begin(), end, [&](std::uint32_t a, std::uint32_t b) {
      return steps_[a] != steps_[b] ? steps_[a] > steps_[b] : a < b;
    });
    last_ = step.count == 0 ? 0 : steps_[order_[0]];
    begins_[0] = 0;
    std::size_t active = step.count;
    for (std::size_t t = 0; t < last_; ++t) {
      while (steps_[order_[active - 1]] <= t) --active;
      for (std::size_t i = 0; i < active; ++i) {
        std::copy_n(in_.values + order_[i] * in_.stride + t * own_.in.dim, own_.in.dim,
                    x_.data() + (begins_[t] + i) * row_stride(own_.in.dim));
      }
      begins_[t + 1] = begins_[t] + active;
    }
    begins_[last_ + 1] = begins_[last_];
  }
  std::size_t all() const { return begins_[last_]; }
  std::size_t active(std::size_t t) const { return begins_[t + 1] - begins_[t]; }

  float* gates(std::size_t t) { return gates_.data() + begins_[t] * row_stride(gates_width_); }
  float* hidden(std::size_t t) { return hidden_.data() + begins_[t] * row_stride(gates_width_); }
  float* before(std::size_t t) { return before_.data() + begins_[t] * row_stride(own_.units); }
  float attention(std::size_t t, std::size_t i) const {
    return own_.attends ? scores_.values[order_[i] * scores_.stride + t] : 1.0f;
  }
  // Where the state after step t of an example is in the output; null: it is not.
  float* output(float* rows, std::size_t t, std::size_t i) const {
    float* row = rows + order_[i] * out_.stride;
    if (!own_.attends) return row + t * own_.units;
    return steps_[order_[i]] == t + 1 ? row : nullptr;
  }

  void clear_scores(const MicroBatch& step) {
    if (!own_.attends || !scores_.needed || scores_.adds) return;
    for (std::size_t row = 0; row < step.count; ++row) {
      std::fill_n(scores_.gradient + row * scores_.stride, scores_.width, 0.0f);
    }
  }

  void parameters_backward(const MicroBatch& step, float* gradient, bool accumulate) {
    multiply({.m = own_.in.dim,
              .n = gates_width_,
              .k = all(),
              .a = x_.data(),
              .a_row = 1,
              .a_col = row_stride(own_.in.dim),
              .b = gates_.data(),
              .ldb = row_stride(gates_width_),
              .c = gradient + own_.weight,
              .ldc = gates_width_,
              .accumulate = accumulate,
              .ahead = &step.ahead});
    multiply({.m = own_.units,
              .n = gates_width_,
              .k = all(),
              .a = before_.data(),
              .a_row = 1,
              .a_col = row_stride(own_.units),
              .b = hidden_.data(),
              .ldb = row_stride(gates_width_),
              .c = gradient + own_.recurrent,
              .ldc = gates_width_,
              .accumulate = accumulate,
              .ahead = &step.ahead});
    dense_.column_sums(gates_.data(), all(), gates_width_, row_stride(gates_width_),
                       gradient + own_.bias, accumulate);
  }

  void input_backward(const MicroBatch& step) {
    const std::size_t dim = own_.in.dim, stride = row_stride(dim);
    multiply({.m = all(),
              .n = dim,
              .k = gates_width_,  // over the inputs, which are done with
              .a = gates_.data(),
              .a_row = row_stride(gates_width_),
              .b = transposed_weight_.data(),
              .ldb = stride,
              .c = x_.data(),
              .ldc = stride,
              .ahead = &step.ahead});
    for (std::size_t i = 0; i < step.count; ++i) {
      float* d_in = in_.gradient + order_[i] * in_.stride;
      for (std::size_t t = 0; t < steps_[order_[i]]; ++t, d_in += dim) {
        const float* d = x_.data() + (begins_[t] + i) * stride;
        for (std::size_t k = 0; k < dim; ++k) d_in[k] = (in_.adds ? d_in[k] : 0) + d[k];
      }
      if (!in_.adds) std::fill_n(d_in, (own_.in.length - steps_[order_[i]]) * dim, 0.0f);
    }
  }

  const Recurrent own_;
  const std::size_t gates_width_;
  const InputWindow in_, scores_;
  const Window out_;
  const DenseKernels& dense_;
  const GatedKernels& kernels_;
  const std::size_t rows_, most_;     // at most: examples, and steps of them together
  std::vector<std::size_t> steps_;    // of each example
  std::vector<std::uint32_t> order_;  // examples, the longest first
  std::vector<std::size_t> begins_;   // the first row of each step
  std::size_t last_ = 0;              // steps of the longest
  // Of each step: the input and then its gradient, both parts of the gates and then theirs, the
  // state before.
  AlignedArray<float> x_, gates_, hidden_, before_;
  AlignedArray<float> d_state_, transposed_weight_, transposed_recurrent_, scratch_;
};

void plan_recurrent(GraphPlanner& graph, bool attends) {
  Recurrent own{};
  own.in = graph.sequence(0);
  own.attends = attends;
  own.units = graph.size("units", 1);
  const std::size_t gates = graph.values(extent({3, own.units}));
  own.weight = graph.parameter("weight", {own.in.dim, gates}, own.in.dim, own.units);
  own.recurrent = graph.parameter("recurrent", {own.units, gates}, own.units, own.units);
  own.bias = graph.parameter("bias", {gates}, own.in.dim, own.units);
  const std::size_t width = graph.values(extent({own.in.length, own.units}));
  graph.count(static_cast<double>(own.in.length) * static_cast<double>(gates) *
                  static_cast<double>(own.in.dim + own.units),
              2);
  graph.becomes(plan_of<RecurrentBlock>(own), attends ? own.units : width, true);
}

}  // namespace

void plan_gru_node(const Node&, GraphPlanner& graph) {
  graph.takes(1, 1);
  const Sequence in = graph.sequence(0);
  plan_recurrent(graph, false);
  graph.gives({in.feature, in.length, graph.size("units", 1)});
}

void plan_augru_node(const Node&, GraphPlanner& graph) {
  graph.takes(2, 2);
  check_scores(graph, 1, graph.sequence(0));
  plan_recurrent(graph, true);
}

}  // namespace leashed
