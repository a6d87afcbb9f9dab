// A feed-forward network: layers of layers/, then a loss of losses/.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "leashed/base/isa.h"
#include "leashed/model/dense_chain.h"
#include "leashed/model/gradient_source.h"
#include "leashed/model/layer.h"

namespace leashed {

class Network final : public GradientSource {
 public:
  // Throws Error, naming the layer by its index, where the layers do not fit each other.
  // The penalty l2/2 |w|² is added to the loss over every parameter that is no bias.
  Network(Shape input, const std::vector<Layer>& layers, Isa isa = default_isa(),
          std::string_view loss = "softmax", double l2 = 0);
  ~Network() override;

  std::size_t outputs() const;
  const std::vector<ParameterBlock>& parameters() const;
  // The layers, where all of them are dense ones and their activations; else none.
  std::vector<DenseStage> dense_stages() const;
  // Floating-point operations of one example's forward and backward pass (2 per multiply-add; the
  // first layer's gradient with respect to its input is not computed and not counted).
  double flops_per_example() const;

  std::unique_ptr<Workspace> make_workspace() const override;
  float gradient(const float* theta, const BatchView& batch, float* gradient, Workspace& workspace,
                 const std::atomic<bool>& cancel) const override;
  Evaluation evaluate(const float* theta, const BatchView& batch,
                      Workspace& workspace) const override;
  // What a prediction is (loss.h) of `size` rows, row-major [size][outputs].
  void predict(const float* theta, const float* const* rows, std::size_t size, float* predictions,
               Workspace& workspace) const;

 private:
  struct Plan;
  std::unique_ptr<const Plan> plan_;
};

}  // namespace leashed
