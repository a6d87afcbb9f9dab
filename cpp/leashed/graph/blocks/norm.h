// A layer that normalises each value by what it comes to in a batch, forward and backward; how is a
// form's to say (batch_norm.cc, data_norm.cc). In training by the batch's own statistics, through
// which gradients flow, so that the whole batch goes through a graph at once; in evaluation by the
// ones that it is given. Parameters: scale [n], then shift [n].
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/graph/block.h"
#include "leashed/graph/graph_planner.h"
#include "leashed/kernels/activation.h"
#include "leashed/kernels/normalise.h"

namespace leashed {

struct NormParameters {
  std::size_t scale, shift;  // offsets in theta
  std::size_t statistics;    // offset among the graph's
};

class NormPlan : public BlockPlan {
 public:
  explicit NormPlan(const NormParameters& own) : own_(own) {}

  bool relu = false;  // follows it

 protected:
  const NormParameters own_;
};

// What a form makes of a column: the value is (x − center) · scale + shift.
struct NormColumn {
  float center, scale, shift;
};
// And of the sums over a batch of its output's gradient d, and of d · (x − center): the gradients
// of its parameters, and that of x, which is d · a + (x − center) · b + c.
struct NormGradient {
  float scale, shift, a, b, c;
};

// A form is a struct with
//   kVariance      whether it asks for the columns' variances beside their means;
//   column(mean, variance, scale, shift), gradient(mean, variance, scale, sum_d, sum_dx, rows).
template <class Form>
class NormBlock final : public Block {
 public:
  NormBlock(const Form& form, const NormParameters& own, bool relu, const Ports& ports)
      : form_(form),
        own_(own),
        relu_(relu),
        in_(ports.inputs[0]),
        out_(ports.output),
        n_(ports.output.width),
        kernels_(normalise_kernels(ports.isa)),
        activation_(activation_kernels(ports.isa)),
        mean_(n_),
        variance_(n_),
        center_(n_),
        scale_(n_),
        shift_(n_),
        a_(n_),
        b_(n_),
        c_(n_),
        partial_(2 * n_),
        sums_(2 * n_) {
    std::fill_n(variance_.data(), n_, 0.0f);
  }

  void forward(const MicroBatch& step) override {
    const float* mean = mean_.data();
    const float* variance = variance_.data();
    if (step.batch.statistics) {
      mean = step.batch.statistics + own_.statistics;
      variance = mean + n_;
    } else {
      measure(step);
    }
    for (std::size_t k = 0; k < n_; ++k) {
      const NormColumn column =
          form_.column(mean[k], Form::kVariance ? variance[k] : 0, step.theta[own_.scale + k],
                       step.theta[own_.shift + k]);
      center_[k] = column.center;
      scale_[k] = column.scale;
      shift_[k] = column.shift;
    }
    kernels_.scale({in_.values, center_.data(), scale_.data(), shift_.data(), out_.values,
                    in_.stride, out_.stride, step.count, n_});
    for (std::size_t row = 0; relu_ && row < step.count; ++row) {
      activation_.relu.forward(out_.values + row * out_.stride, n_);
    }
  }

  void backward(const MicroBatch& step, float* gradient, bool accumulate) override {
    for (std::size_t row = 0; relu_ && row < step.count; ++row) {
      const std::size_t at = row * out_.stride;
      activation_.relu.backward(out_.values + at, out_.gradient + at, n_);
    }
    kernels_.sums(
        {out_.gradient, in_.values, center_.data(), out_.stride, in_.stride, step.count, n_},
        partial_.data(), sums_.data());
    for (std::size_t k = 0; k < n_; ++k) {
      const NormGradient found =
          form_.gradient(mean_[k], variance_[k], step.theta[own_.scale + k], sums_[k],
                         sums_[n_ + k], static_cast<double>(step.count));
      float& d_scale = gradient[own_.scale + k];
      float& d_shift = gradient[own_.shift + k];
      d_scale = (accumulate ? d_scale : 0) + found.scale;
      d_shift = (accumulate ? d_shift : 0) + found.shift;
      a_[k] = found.a;
      b_[k] = found.b;
      c_[k] = found.c;
    }
    if (!in_.needed) return;
    kernels_.input_gradient({out_.gradient, in_.values, center_.data(), a_.data(), b_.data(),
                             c_.data(), in_.gradient, out_.stride, in_.stride, step.count, n_,
                             in_.adds});
  }

 private:
  // A batch's own, and what it tells of the variance of all there could be (divided by one less
  // than the number of rows), as PyTorch keeps it.
  void measure(const MicroBatch& step) {
    kernels_.moments(in_.values, in_.stride, step.count, n_, mean_.data(),
                     Form::kVariance ? variance_.data() : nullptr, partial_.data(), sums_.data());
    if (!step.batch.own_statistics) return;
    float* const mean = step.batch.own_statistics + own_.statistics;
    std::copy_n(mean_.data(), n_, mean);
    if (!Form::kVariance) return;
    const auto rows = static_cast<float>(step.count);
    for (std::size_t k = 0; k < n_; ++k)
      mean[n_ + k] = variance_[k] * rows / std::max(1.0f, rows - 1);
  }

  const Form form_;
  const NormParameters own_;
  const bool relu_;
  const InputWindow in_;
  const Window out_;
  const std::size_t n_;
  const NormaliseKernels& kernels_;
  const ActivationKernels& activation_;
  AlignedArray<float> mean_, variance_, center_, scale_, shift_, a_, b_, c_, partial_;
  std::vector<double> sums_;
};

template <class Form>
class FormPlan final : public NormPlan {
 public:
  FormPlan(const Form& form, const NormParameters& own) : NormPlan(own), form_(form) {}
  std::unique_ptr<Block> make(const Ports& ports) const override {
    return std::make_unique<NormBlock<Form>>(form_, own_, relu, ports);
  }

 private:
  const Form form_;
};

// The node becomes a block of that form.
template <class Form>
void plan_norm(const Form& form, GraphPlanner& graph) {
  graph.takes(1, 1);
  const std::size_t n = graph.width(0);
  graph.count(static_cast<double>(2 * n), 2);
  NormParameters own;
  own.scale = graph.parameter("scale", {n}, n, n);
  own.shift = graph.parameter("shift", {n}, n, n);
  own.statistics = graph.statistic("mean", n, Form::kLeast);
  if (Form::kVariance) graph.statistic("variance", n, 0);
  graph.becomes(std::make_unique<FormPlan<Form>>(form, own), n, true);
}

}  // namespace leashed
