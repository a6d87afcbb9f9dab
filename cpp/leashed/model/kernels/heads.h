// Kernels of the heads (model/head.h).
#pragma once

#include <cstddef>

#include "leashed/base/isa.h"
#include "leashed/data/dataset_view.h"
#include "leashed/model/head.h"

namespace leashed {

struct HeadKernels {
  // Outputs [rows][n] with row stride ld → the derivatives of the rows' losses with respect to
  // them, in place. Returns the sum of the losses; NaN if an output is.
  double (*residuals)(Head head, float* outputs, std::size_t rows, std::size_t n, std::size_t ld,
                      const Targets& targets);
  // The same of log_loss with one output, outputs [rows], without the loss: the sum of the outputs
  // instead. Writes up to the next multiple of 16.
  float (*log_loss_residuals)(float* outputs, std::size_t rows, const std::int32_t* labels);
  // Outputs → what a prediction is, in place: probabilities (softmax, log_loss) or the outputs.
  void (*predict)(Head head, float* outputs, std::size_t rows, std::size_t n, std::size_t ld);
};

const HeadKernels& head_kernels(Isa isa);

}  // namespace leashed
