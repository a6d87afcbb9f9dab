// Field-aware factorisation machines (Juan et al., "Field-aware Factorization Machines for CTR
// Prediction", 2016, eq. 4) on sparse rows: o = b + Σ_j w_j x_j + Σ_{i<j} ⟨v_i,f(j), v_j,f(i)⟩ x_i
// x_j. Each column is of a field, f(j), and has k factors for each field that it may meet.
#pragma once

#include <cstdint>
#include <vector>

#include "leashed/columns/sparse_model.h"
#include "leashed/kernels/field_factors.h"

namespace leashed {

class FieldAwareMachine final : public ColumnwiseModel {
 public:
  // Of each column its field; there are as many fields as the largest says. Theta is the columns'
  // records [features][1 + fields · k], a weight and the factors for each field, and the intercept,
  // in this order, or the intercept first. The penalty is on weights and factors. Throws Error
  // where features or k are 0, or more than any memory holds, or the loss takes another number of
  // outputs than 1.
  FieldAwareMachine(std::vector<std::uint16_t> field_of, std::size_t k, std::string_view loss,
                    double l2, bool intercept_first = false, Isa isa = default_isa());

  std::unique_ptr<SparseModel> for_ordered(const OrderedRows& rows) const override;
  bool takes_distinct_columns() const override { return true; }
  std::unique_ptr<Workspace> make_workspace() const override;

  float update(const SparseUpdate& update, const BatchView& rows,
               Workspace& workspace) const override;

 private:
  struct Own;

  void outputs_of(const float* theta, const SparseRows& rows, std::size_t count, float* out,
                  Workspace& workspace) const override;
  void add_gradient(const float* theta, const SparseRows& rows, std::size_t count,
                    const float* residuals, float scale, float* gradient,
                    Workspace& workspace) const override;
  // Of one row, found and kept in `own`. Entries before number `end` follow it.
  float output_of(const float* theta, std::size_t stride, const SparseRows& row, std::int64_t end,
                  Own& own) const;
  FieldShape kernel_shape(std::size_t stride) const { return {shape_.width - 1, k_, stride}; }

  const std::vector<std::uint16_t> field_of_;
  const std::size_t k_;
};

}  // namespace leashed
