// Dense layers on sparse rows: what Network is with several, for data most of whose values are 0.
// The first layer goes by the values that there are; gradients and updates are of all parameters.
#pragma once

#include <vector>

#include "leashed/columns/sparse_model.h"
#include "leashed/model/dense_chain.h"

namespace leashed {

class SparseNetwork final : public SparseModel {
 public:
  // The stages, at least two, of a network whose parameters lie as they say, from the first one's
  // weights on; the last has no activation. Theta is as there, or all but these weights first.
  // Throws Error where the loss takes another number of outputs.
  SparseNetwork(const std::vector<DenseStage>& stages, std::string_view loss, double l2,
                bool columns_last = false, Isa isa = default_isa());

  std::unique_ptr<SparseModel> for_ordered(const OrderedRows&) const override {
    return std::make_unique<SparseNetwork>(stages_, loss_.name, l2_, true, isa_);
  }
  std::unique_ptr<Workspace> make_workspace() const override;

 private:
  struct Own;

  double begin_gradient(const float* theta, float* gradient, Workspace& workspace) const override;
  void outputs_of(const float* theta, const SparseRows& rows, std::size_t count, float* out,
                  Workspace& workspace) const override;
  void add_gradient(const float* theta, const SparseRows& rows, std::size_t count,
                    const float* residuals, float scale, float* gradient,
                    Workspace& workspace) const override;

  const std::vector<DenseStage> stages_;
};

}  // namespace leashed
