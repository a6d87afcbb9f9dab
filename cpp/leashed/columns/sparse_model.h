// Models of sparse rows: parameters of each column, and others, the intercepts.
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>

#include "leashed/base/aligned.h"
#include "leashed/base/isa.h"
#include "leashed/model/gradient_source.h"
#include "leashed/model/loss.h"
#include "leashed/sparse/column_shape.h"
#include "leashed/sparse/ordered_rows.h"

namespace leashed {

class SparseModel : public GradientSource {
 public:
  std::size_t outputs() const { return outputs_; }
  // Theta is the columns' parameters, then the intercepts; or these first.
  const ColumnShape& shape() const { return shape_; }
  // The same for such rows, whose columns have other numbers, with the intercepts first.
  virtual std::unique_ptr<SparseModel> for_ordered(const OrderedRows& rows) const = 0;
  // Whether no row may have a column twice.
  virtual bool takes_distinct_columns() const { return false; }

  float gradient(const float* theta, const BatchView& batch, float* gradient, Workspace& workspace,
                 const std::atomic<bool>& cancel) const final;
  Evaluation evaluate(const float* theta, const BatchView& batch,
                      Workspace& workspace) const override;
  // What a prediction is (loss.h), [size][outputs].
  void predict(const float* theta, const SparseRows& rows, std::size_t size, float* out) const;

 protected:
  static constexpr std::size_t kMicroBatch = 64;

  // Scratch memory that only ever grows.
  struct Scratch : Workspace {
    // Outputs of so many rows, then their residuals.
    float* outputs_for(std::size_t n) { return grown(outputs, n); }
    // So many zeros, which whoever has written to them makes zeros again.
    float* gradient_for(std::size_t n);

    AlignedArray<float> outputs, gradient;

   protected:
    // Padded for kernels that write whole vectors.
    static float* grown(AlignedArray<float>& values, std::size_t n) {
      constexpr std::size_t kPadding = 16;
      if (values.size() < n + kPadding) values = AlignedArray<float>(2 * n + kPadding);
      return values.data();
    }
  };

  struct Form {
    std::size_t features, outputs;
    ColumnShape shape;
    bool intercepts_first;
    bool trains_intercepts = true;
    std::size_t micro_batch = kMicroBatch;  // rows at most whose gradient is added at once
  };
  // Throws Error where there is nothing to train, or more than any memory holds, or the loss takes
  // another number of outputs. `what`: a model's name in messages.
  SparseModel(const char* what, const Form& form, std::string_view loss, double l2, Isa isa);

  // out [count][outputs], of kMicroBatch rows at most; of as many as the form says what their
  // gradient needs is kept.
  virtual void outputs_of(const float* theta, const SparseRows& rows, std::size_t count, float* out,
                          Workspace& workspace) const = 0;
  // gradient += scale · that of the columns, of the rows whose outputs were asked for last.
  virtual void add_gradient(const float* theta, const SparseRows& rows, std::size_t count,
                            const float* residuals, float scale, float* gradient,
                            Workspace& workspace) const = 0;

  // Where they begin in theta.
  std::size_t columns() const { return intercepts_first_ ? shape_.intercepts : 0; }
  std::size_t intercepts() const { return intercepts_first_ ? 0 : features_ * shape_.width; }
  // gradient = the penalty's, 0 for what has none. Returns |w|², w being what is penalised; 0
  // without a penalty.
  virtual double begin_gradient(const float* theta, float* gradient, Workspace& workspace) const;
  // Outputs → residuals, in place. Adds the losses to *loss, where one is given; the result is not
  // finite where an output is not.
  float residuals(float* outputs, std::size_t count, const Targets& targets, double* loss) const;
  // To where the batch asks for the logits of its rows from `first` on; before they are residuals.
  void tell_logits(const BatchView& batch, std::size_t first, std::size_t count,
                   const float* outputs) const {
    if (batch.logits) std::copy_n(outputs, count * outputs_, batch.logits + first * outputs_);
  }
  // sums [n] += scale · the sums of the residuals [rows][n].
  static void add_residuals(float* sums, std::size_t n, const float* residuals, std::size_t rows,
                            float scale);
  // A row that has the first column, for kernels to update intercepts by: an intercept is one
  // column more, which every row has.
  static SparseRows one_row();

  const std::size_t features_, outputs_;
  const ColumnShape shape_;
  const Loss& loss_;
  const double l2_;
  const bool intercepts_first_, trains_intercepts_;
  const Isa isa_;

 private:
  const std::size_t micro_batch_;
};

// Those whose updates of SGD or Adagrad touch nothing but the columns of a batch's rows, as in the
// original Hogwild (Niu et al., "Hogwild!: A lock-free approach to parallelizing stochastic
// gradient descent", 2011).
class ColumnwiseModel : public SparseModel, public InPlaceUpdates {
 public:
  const InPlaceUpdates* in_place() const final { return this; }
  bool takes(const Rule& rule) const final;

 protected:
  using SparseModel::SparseModel;
};

}  // namespace leashed
