// Σ_t a_t k_t over the steps of a sequence, of its inputs, the scores a and the sequence k.
#include "leashed/graph/blocks/steps.h"
#include "leashed/kernels/attention.h"

namespace leashed {
namespace {

class PoolBlock final : public Block {
 public:
  PoolBlock(const Sequence& keys, const Ports& ports)
      : of_(keys),
        scores_(ports.inputs[0]),
        keys_(ports.inputs[1]),
        out_(ports.output),
        kernels_(attention_kernels(ports.isa)) {}

  void forward(const MicroBatch& step) override {
    for (std::size_t row = 0; row < step.count; ++row) {
      kernels_.combine(scores_.values + row * scores_.stride, keys_.values + row * keys_.stride,
                       of_.steps(step.batch, step.first + row), of_.dim,
                       out_.values + row * out_.stride, false);
    }
  }

  void backward(const MicroBatch& step, float*, bool) override {
    for (std::size_t row = 0; row < step.count; ++row) {
      const std::size_t steps = of_.steps(step.batch, step.first + row);
      const float* d_out = out_.gradient + row * out_.stride;
      if (scores_.needed) {
        float* d_scores = scores_.gradient + row * scores_.stride;
        kernels_.dots(d_out, keys_.values + row * keys_.stride, steps, of_.dim, d_scores,
                      scores_.adds);
        if (!scores_.adds) std::fill(d_scores + steps, d_scores + of_.length, 0.0f);
      }
      if (keys_.needed) {
        float* d_keys = keys_.gradient + row * keys_.stride;
        kernels_.outer(scores_.values + row * scores_.stride, d_out, steps, of_.dim, d_keys,
                       keys_.adds);
        if (!keys_.adds) clear_behind(d_keys, steps, of_);
      }
    }
  }

 private:
  const Sequence of_;
  const InputWindow scores_, keys_;
  const Window out_;
  const AttentionKernels& kernels_;
};

}  // namespace

void plan_attention_pool_node(const Node&, GraphPlanner& graph) {
  graph.takes(2, 2);
  const Sequence keys = graph.sequence(1);
  check_scores(graph, 0, keys);
  graph.count(static_cast<double>(keys.length) * static_cast<double>(keys.dim), 2);
  graph.becomes(plan_of<PoolBlock>(keys), keys.dim, false);
}

}  // namespace leashed
