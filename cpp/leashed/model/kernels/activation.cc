#include "leashed/model/kernels/activation.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "leashed/base/isa_table.h"
#include "leashed/base/simd.h"
#include "leashed/model/kernels/exponential.h"
#include "leashed/model/kernels/partial.h"

namespace leashed {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

LEASHED_INLINE float largest(vfloat v) {
  float lanes[kLanes];
  vstore(lanes, v);
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] = std::max(lanes[i], lanes[i + half]);
  }
  return lanes[0];
}

LEASHED_INLINE float total(vfloat v) {
  float lanes[kLanes];
  vstore(lanes, v);
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

double softmax(const float* logits, std::size_t rows, std::size_t classes, std::size_t ld,
               const std::int32_t* labels, float* out) {
  const std::size_t whole = classes / kLanes * kLanes;
  const std::size_t rest = classes - whole;
  double loss = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const float* x = logits + row * ld;
    float* p = out + row * ld;
    const float labelled = labels ? x[labels[row]] : 0;

    vfloat high = vset(-kInfinity);
    const auto raise = [&](vfloat v) { high = v > high ? v : high; };
    for (std::size_t j = 0; j < whole; j += kLanes) raise(vload(x + j));
    if (rest) raise(vload_partial(x + whole, rest, -kInfinity));
    const float maximum = largest(high);

    vfloat sums = {};
    for (std::size_t j = 0; j < whole; j += kLanes) {
      const vfloat e = exp_negative(vload(x + j) - maximum);
      vstore(p + j, e);
      sums += e;
    }
    if (rest) {
      const vfloat e = exp_negative(vload_partial(x + whole, rest, -kInfinity) - maximum);
      vstore_partial(p + whole, e, rest);
      sums += e;
    }
    const float sum = total(sums);
    const float inverse = 1.0f / sum;
    for (std::size_t j = 0; j < whole; j += kLanes) vstore(p + j, vload(p + j) * inverse);
    if (rest) vstore_partial(p + whole, vload_partial(p + whole, rest) * inverse, rest);
    if (labels) loss += std::log(static_cast<double>(sum)) - (double{labelled} - double{maximum});
  }
  return loss;
}

void softmax_backward(float* p, std::size_t rows, std::size_t classes, std::size_t ld,
                      const std::int32_t* labels, float scale) {
  for (std::size_t row = 0; row < rows; ++row, p += ld) {
    p[labels[row]] -= 1;
    for (std::size_t j = 0; j < classes; ++j) p[j] *= scale;
  }
}

void relu(float* x, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] = x[i] < 0 ? 0 : x[i];
}

void relu_backward(const float* out, float* gradient, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) gradient[i] = out[i] > 0 ? gradient[i] : 0;
}

}  // namespace

extern const ActivationKernels LEASHED_ISA_NAME(activation_kernels);
const ActivationKernels LEASHED_ISA_NAME(activation_kernels) = {softmax, softmax_backward, relu,
                                                                relu_backward};

}  // namespace leashed
