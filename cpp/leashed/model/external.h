// Gradients from a function of the user's own, by the C contract of src/leashed/include/leashed.h.
#pragma once

#include "leashed/model/gradient_source.h"

namespace leashed {

// (y: int32_t or float.)
using ExternalFunction = float (*)(const float* theta, const float* x, const std::int64_t* rows,
                                   const void* y, std::int64_t batch, float* gradient,
                                   void* workspace, void* user_data);

class ExternalSource final : public GradientSource {
 public:
  struct Parts {
    ExternalFunction gradient;
    ExternalFunction loss;  // asked with a null gradient; null: `gradient` is asked
    void* gradient_data;    // user_data of each
    void* loss_data;
    std::size_t dimension, features;
    std::size_t workspace_bytes;
    bool targets;  // y is float
    std::vector<std::size_t> variable_ends;
  };
  explicit ExternalSource(Parts parts) : parts_(std::move(parts)) {}

  std::size_t dimension() const override { return parts_.dimension; }
  std::size_t features() const override { return parts_.features; }
  std::vector<std::size_t> block_ends() const override { return parts_.variable_ends; }
  std::size_t classes() const override { return parts_.targets ? 0 : kAnyLabel; }
  bool classifies() const override { return false; }
  bool takes_weights() const override { return false; }
  std::unique_ptr<Workspace> make_workspace() const override;

  float gradient(const float* theta, const BatchView& batch, float* gradient, Workspace& workspace,
                 const std::atomic<bool>& cancel) const override;
  Evaluation evaluate(const float* theta, const BatchView& batch,
                      Workspace& workspace) const override;

 private:
  class Scratch;
  const Parts parts_;
};

}  // namespace leashed
