#include "leashed/kernels/activation.h"

#include "leashed/base/isa_table.h"

namespace leashed {
namespace {

void relu(float* x, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] = x[i] < 0 ? 0 : x[i];
}

void relu_backward(const float* out, float* gradient, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) gradient[i] = out[i] > 0 ? gradient[i] : 0;
}

}  // namespace

extern const ActivationKernels LEASHED_ISA_NAME(activation_kernels);
const ActivationKernels LEASHED_ISA_NAME(activation_kernels) = {relu, relu_backward};

}  // namespace leashed
