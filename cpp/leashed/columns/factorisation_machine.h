// Factorisation machines (Rendle, "Factorization machines", 2010, eq. 1) on sparse rows:
// o = b + Σ_j w_j x_j + Σ_{i<j} ⟨v_i, v_j⟩ x_i x_j, each column's v being k factors. The pairs take
// no longer than the columns: ½ Σ_f ((Σ_j v_jf x_j)² − Σ_j v_jf² x_j²).
#pragma once

#include "leashed/columns/sparse_model.h"

namespace leashed {

class FactorisationMachine final : public ColumnwiseModel {
 public:
  // Theta is the columns' records [features][1 + k], a weight and k factors each, and the
  // intercept, in this order, or the intercept first. The penalty is on weights and factors. Throws
  // Error where features or k are 0, or more than any memory holds, or the loss takes another
  // number of outputs than 1.
  FactorisationMachine(std::size_t features, std::size_t k, std::string_view loss, double l2,
                       bool intercept_first = false, Isa isa = default_isa());

  std::unique_ptr<SparseModel> for_ordered(const OrderedRows&) const override {
    return std::make_unique<FactorisationMachine>(features_, k(), loss_.name, l2_, true, isa_);
  }
  bool takes_distinct_columns() const override { return true; }
  std::unique_ptr<Workspace> make_workspace() const override;

  float update(const SparseUpdate& update, const BatchView& rows,
               Workspace& workspace) const override;

 private:
  struct Own;

  std::size_t k() const { return shape_.width - 1; }
  void outputs_of(const float* theta, const SparseRows& rows, std::size_t count, float* out,
                  Workspace& workspace) const override;
  void add_gradient(const float* theta, const SparseRows& rows, std::size_t count,
                    const float* residuals, float scale, float* gradient,
                    Workspace& workspace) const override;
};

}  // namespace leashed
