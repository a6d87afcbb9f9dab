// Linear models on sparse rows: what Network is with one dense layer, for data most of whose values
// are 0.
#pragma once

#include "leashed/columns/sparse_model.h"

namespace leashed {

class SparseLinear final : public ColumnwiseModel {
 public:
  // Theta is W [features][outputs] and b [outputs], in this order, or b first. b stays as it is
  // where it is not trained. Throws Error where there is nothing to train, or more than any memory
  // holds, or the loss takes another number of outputs.
  SparseLinear(std::size_t features, std::size_t outputs, std::string_view loss, double l2,
               bool trains_bias = true, bool bias_first = false, Isa isa = default_isa());

  SparseLinear bias_first() const {
    return {features_, outputs_, loss_.name, l2_, trains_intercepts_, true, isa_};
  }
  std::unique_ptr<SparseModel> for_ordered(const OrderedRows&) const override {
    return std::make_unique<SparseLinear>(bias_first());
  }
  std::unique_ptr<Workspace> make_workspace() const override;

  float update(const SparseUpdate& update, const BatchView& rows,
               Workspace& workspace) const override;

 private:
  void outputs_of(const float* theta, const SparseRows& rows, std::size_t count, float* out,
                  Workspace& workspace) const override;
  void add_gradient(const float* theta, const SparseRows& rows, std::size_t count,
                    const float* residuals, float scale, float* gradient,
                    Workspace& workspace) const override;
};

}  // namespace leashed
