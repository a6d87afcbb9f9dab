// Inverted dropout (Srivastava et al., 2014): in training each value is 0 with probability `rate`,
// and else divided by 1 − rate; in evaluation it is as it was. Which ones is drawn by (seed, place
// of the example in the stream of examples, node, value) alone: the same mask whoever computes the
// gradient, in whatever micro-batches, and however often.
#include <algorithm>
#include <cmath>

#include "leashed/base/aligned.h"
#include "leashed/base/philox.h"
#include "leashed/graph/graph_planner.h"
#include "leashed/kernels/elementwise.h"
#include "leashed/model/row_stride.h"

namespace leashed {
namespace {

constexpr std::uint64_t kStream = 0x64726f706f757421;  // of Philox's, apart from others'

class DropoutBlock final : public Block {
 public:
  DropoutBlock(double rate, std::size_t node, const Ports& ports)
      : below_(static_cast<std::uint64_t>(std::llround(rate * 0x1p32))),
        kept_(static_cast<float>(1 / (1 - rate))),
        node_(node),
        in_(ports.inputs[0]),
        out_(ports.output),
        elementwise_(elementwise_kernels(ports.isa)),
        ld_(row_stride(out_.width)),
        mask_(ports.max_rows * ld_) {}

  void forward(const MicroBatch& step) override {
    elementwise_.copy(in_.values, in_.stride, out_.values, out_.stride, step.count, out_.width,
                      false);
    if (!step.trains) return;
    draw(step);
    multiply(out_.values, step.count);
  }

  void backward(const MicroBatch& step, float*, bool) override {
    if (!in_.needed) return;
    multiply(out_.gradient, step.count);
    elementwise_.copy(out_.gradient, out_.stride, in_.gradient, in_.stride, step.count, out_.width,
                      in_.adds);
  }

 private:
  void draw(const MicroBatch& step) {
    const Drawing& drawing = step.batch.drawing;
    for (std::size_t row = 0; row < step.count; ++row) {
      float* const mask = mask_.data() + row * ld_;
      const std::uint64_t place = drawing.place + step.first + row;
      for (std::size_t j = 0; j < out_.width; j += 4) {
        const auto words =
            philox(drawing.seed, kStream ^ place, std::uint64_t{node_} << 32 | j / 4);
        for (std::size_t i = j; i < std::min(j + 4, out_.width); ++i) {
          mask[i] = words[i - j] < below_ ? 0.0f : kept_;
        }
      }
    }
  }
  void multiply(float* values, std::size_t rows) const {
    for (std::size_t row = 0; row < rows; ++row) {
      float* const own = values + row * out_.stride;
      const float* const mask = mask_.data() + row * ld_;
      for (std::size_t j = 0; j < out_.width; ++j) own[j] *= mask[j];
    }
  }

  const std::uint64_t below_;  // what drops a word
  const float kept_;
  const std::size_t node_;
  const InputWindow in_;
  const Window out_;
  const ElementwiseKernels& elementwise_;
  const std::size_t ld_;
  AlignedArray<float> mask_;
};

}  // namespace

void plan_dropout_node(const Node& node, GraphPlanner& graph) {
  graph.takes(1, 1);
  const double rate = node.kind["rate"];
  if (!(rate >= 0 && rate < 1)) graph.fail("rate must be from 0 to below 1");
  graph.becomes(plan_of<DropoutBlock>(rate, graph.index()), graph.width(0), false);
}

}  // namespace leashed
