// Gradients from functions of the user's own, by the C contract of src/leashed/include/leashed.h:
// of dense data here, with rows of tables in external_rows.h.
#pragma once

#include "leashed/model/gradient_source.h"

namespace leashed {

// What is told of a model that is known by its functions alone.
struct ExternalShape {
  std::size_t dimension, features;
  bool targets;  // y is float
  std::vector<std::size_t> variable_ends;
  std::vector<TableShape> tables = {};
  std::vector<std::size_t> features_of_tables = {};
};

class ExternalModel : public GradientSource {
 public:
  // Throws Error where a feature is of no table.
  explicit ExternalModel(ExternalShape shape, bool gives_logits = false);

  // Writes the logit of each example to out[0..size), where it gives logits.
  virtual void logits(const float*, const BatchView&, float*, Workspace&) const {}

 protected:
  const ExternalShape& shape() const { return shape_; }

 private:
  const ExternalShape shape_;
};

// (y: int32_t or float.)
using ExternalFunction = float (*)(const float* theta, const float* x, const std::int64_t* rows,
                                   const void* y, std::int64_t batch, float* gradient,
                                   void* workspace, void* user_data);

class ExternalSource final : public ExternalModel {
 public:
  struct Parts {
    ExternalFunction gradient;
    ExternalFunction loss;  // asked with a null gradient; null: `gradient` is asked
    void* gradient_data;    // user_data of each
    void* loss_data;
    std::size_t workspace_bytes;
  };
  ExternalSource(ExternalShape shape, Parts parts)
      : ExternalModel(std::move(shape)), parts_(parts) {}

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
