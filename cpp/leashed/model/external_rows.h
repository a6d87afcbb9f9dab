// Gradients from functions of the user's own that read rows of tables too, by the contract
// leashed_gradient_rows of src/leashed/include/leashed.h.
#pragma once

#include "leashed/model/external.h"

namespace leashed {

using ExternalRowsFunction = float (*)(const float* theta, const float* x, const std::int64_t* rows,
                                       const std::int32_t* y, std::int64_t batch,
                                       const std::int64_t* offsets, const std::int64_t* places,
                                       const float* weights, const std::int64_t* counts,
                                       const float* values, float* gradient, float* row_gradients,
                                       float* logits, void* workspace, void* user_data);

class ExternalRowsSource final : public ExternalModel {
 public:
  struct Function {
    ExternalRowsFunction call = nullptr;  // null: there is none
    void* user_data = nullptr;
  };
  struct Parts {
    Function gradient;
    Function loss;    // asked with null gradients; without one `gradient` is
    Function logits;  // asked with null gradients and labels
    std::size_t workspace_bytes = 0;
  };
  ExternalRowsSource(ExternalShape shape, Parts parts)
      : ExternalModel(std::move(shape), parts.logits.call != nullptr), parts_(parts) {}

  std::unique_ptr<Workspace> make_workspace() const override;

  float gradient(const float* theta, const BatchView& batch, float* gradient, Workspace& workspace,
                 const std::atomic<bool>& cancel) const override;
  Evaluation evaluate(const float* theta, const BatchView& batch,
                      Workspace& workspace) const override;
  void logits(const float* theta, const BatchView& batch, float* out,
              Workspace& workspace) const override;

 private:
  class Scratch;
  const Parts parts_;
};

}  // namespace leashed
