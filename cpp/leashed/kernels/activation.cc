#include "leashed/kernels/activation.h"

#include "leashed/base/isa_table.h"
#include "leashed/kernels/partial.h"
#include "leashed/kernels/sigmoid.h"

namespace leashed {
namespace {

void relu(float* x, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] = x[i] < 0 ? 0 : x[i];
}

void relu_backward(const float* out, float* gradient, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) gradient[i] = out[i] > 0 ? gradient[i] : 0;
}

void tanh_forward(float* x, std::size_t n) {
  for (std::size_t i = 0; i < n; i += kLanes) {
    vstore_up_to(x + i, tanh(vload_up_to(x + i, n - i)), n - i);
  }
}

void tanh_backward(const float* out, float* gradient, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) gradient[i] *= 1.0f - out[i] * out[i];
}

void sigmoid_forward(float* x, std::size_t n) {
  for (std::size_t i = 0; i < n; i += kLanes) {
    vstore_up_to(x + i, sigmoid(vload_up_to(x + i, n - i)), n - i);
  }
}

void sigmoid_backward(const float* out, float* gradient, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) gradient[i] *= out[i] * (1.0f - out[i]);
}

}  // namespace

extern const ActivationKernels LEASHED_ISA_NAME(activation_kernels);
const ActivationKernels LEASHED_ISA_NAME(activation_kernels) = {
    .relu = {relu, relu_backward},
    .tanh = {tanh_forward, tanh_backward},
    .sigmoid = {sigmoid_forward, sigmoid_backward},
};

}  // namespace leashed
