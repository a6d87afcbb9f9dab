// Linear models on sparse rows: what Network is with one dense layer, for data most of whose values
// are 0. An update of SGD or Adagrad touches nothing but the columns of its rows, as in the
// original Hogwild (Niu et al., "Hogwild!: A lock-free approach to parallelizing stochastic
// gradient descent", 2011).
#pragma once

#include <memory>
#include <string_view>

#include "leashed/base/isa.h"
#include "leashed/model/gradient_source.h"
#include "leashed/model/loss.h"

namespace leashed {

class SparseLinear final : public GradientSource {
 public:
  // Theta is W [features][outputs] and b [outputs], in this order, or b first. b stays as it is
  // where it is not trained. Throws Error where there is nothing to train, or more than any memory
  // holds, or the loss takes another number of outputs.
  SparseLinear(std::size_t features, std::size_t outputs, std::string_view loss, double l2,
               bool trains_bias = true, bool bias_first = false, Isa isa = default_isa());

  std::size_t dimension() const override { return (features_ + 1) * outputs_; }
  std::size_t features() const override { return features_; }
  std::size_t outputs() const { return outputs_; }
  std::size_t classes() const override { return loss_.classes(outputs_); }
  SparseLinear bias_first() const {
    return {features_, outputs_, loss_.name, l2_, trains_bias_, true, isa_};
  }
  std::vector<std::size_t> block_ends() const override;
  std::unique_ptr<Workspace> make_workspace() const override;

  float gradient(const float* theta, const BatchView& batch, float* gradient, Workspace& workspace,
                 const std::atomic<bool>& cancel) const override;
  bool updates_in_place(const Rule& rule) const override;
  float update(const SparseUpdate& update, const BatchView& rows,
               Workspace& workspace) const override;
  double l2() const override { return l2_; }
  double curvature() const override { return loss_.curvature; }
  Evaluation evaluate(const float* theta, const BatchView& batch,
                      Workspace& workspace) const override;
  // What a prediction is (loss.h), [size][outputs].
  void predict(const float* theta, const SparseRows& rows, std::size_t size, float* out) const;

 private:
  struct Own;
  std::size_t weights() const { return bias_first_ ? outputs_ : 0; }
  std::size_t bias() const { return bias_first_ ? 0 : features_ * outputs_; }

  const std::size_t features_, outputs_;
  const Loss& loss_;
  const double l2_;
  const bool trains_bias_, bias_first_;
  const Isa isa_;
};

}  // namespace leashed
