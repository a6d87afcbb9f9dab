// softmax over the steps t of a sequence of q·h_t (Zhou et al., "Deep Interest Evolution Network
// for Click-Through Rate Prediction", 2019, eq. 14, whose e_a W is q). Zeros behind the sequence.
#include "leashed/graph/blocks/steps.h"
#include "leashed/kernels/attention.h"

namespace leashed {
namespace {

class ScoresBlock final : public Block {
 public:
  ScoresBlock(const Sequence& keys, const Ports& ports)
      : of_(keys),
        query_(ports.inputs[0]),
        keys_(ports.inputs[1]),
        out_(ports.output),
        kernels_(attention_kernels(ports.isa)),
        d_scores_(keys.length) {}

  void forward(const MicroBatch& step) override {
    for (std::size_t row = 0; row < step.count; ++row) {
      const std::size_t steps = of_.steps(step.batch, step.first + row);
      float* out = out_.values + row * out_.stride;
      kernels_.dots(query_.values + row * query_.stride, keys_.values + row * keys_.stride, steps,
                    of_.dim, out, false);
      kernels_.softmax(out, steps, out);
      std::fill(out + steps, out + of_.length, 0.0f);
    }
  }

  void backward(const MicroBatch& step, float*, bool) override {
    for (std::size_t row = 0; row < step.count; ++row) {
      const std::size_t steps = of_.steps(step.batch, step.first + row);
      const std::size_t at = row * out_.stride;
      kernels_.softmax_backward(out_.values + at, out_.gradient + at, steps, d_scores_.data());
      if (query_.needed) {
        kernels_.combine(d_scores_.data(), keys_.values + row * keys_.stride, steps, of_.dim,
                         query_.gradient + row * query_.stride, query_.adds);
      }
      if (keys_.needed) {
        float* d_keys = keys_.gradient + row * keys_.stride;
        kernels_.outer(d_scores_.data(), query_.values + row * query_.stride, steps, of_.dim,
                       d_keys, keys_.adds);
        if (!keys_.adds) clear_behind(d_keys, steps, of_);
      }
    }
  }

 private:
  const Sequence of_;
  const InputWindow query_, keys_;
  const Window out_;
  const AttentionKernels& kernels_;
  std::vector<float> d_scores_;
};

}  // namespace

void plan_attention_scores_node(const Node&, GraphPlanner& graph) {
  graph.takes(2, 2);
  const Sequence keys = attended(graph);
  graph.count(static_cast<double>(keys.length) * static_cast<double>(keys.dim), 2);
  graph.becomes(plan_of<ScoresBlock>(keys), keys.length, false);
  graph.gives({keys.feature, keys.length, 1});
}

}  // namespace leashed
