#include "leashed/kernels/gated.h"

#include "leashed/base/isa_table.h"
#include "leashed/base/simd.h"
#include "leashed/kernels/partial.h"
#include "leashed/kernels/sigmoid.h"

namespace leashed {
namespace {

void forward(float* gates, const float* hidden, const float* before, float attention,
             std::size_t units, float* after) {
  float *update = gates, *reset = gates + units, *candidate = gates + 2 * units;
  for (std::size_t k = 0; k < units; k += kLanes) {
    const std::size_t n = units - k;
    const vfloat u = sigmoid(vload_up_to(update + k, n) + vload_up_to(hidden + k, n));
    const vfloat r = sigmoid(vload_up_to(reset + k, n) + vload_up_to(hidden + units + k, n));
    const vfloat c =
        tanh(vload_up_to(candidate + k, n) + r * vload_up_to(hidden + 2 * units + k, n));
    const vfloat h = vload_up_to(before + k, n);
    vstore_up_to(update + k, u, n);
    vstore_up_to(reset + k, r, n);
    vstore_up_to(candidate + k, c, n);
    vstore_up_to(after + k, h + attention * u * (c - h), n);
  }
}

float backward(float* gates, float* hidden, const float* before, float attention, std::size_t units,
               float* d_state) {
  float *update = gates, *reset = gates + units, *candidate = gates + 2 * units;
  vfloat d_attention = {};
  for (std::size_t k = 0; k < units; k += kLanes) {
    const std::size_t n = units - k;
    const vfloat u = vload_up_to(update + k, n), r = vload_up_to(reset + k, n);
    const vfloat c = vload_up_to(candidate + k, n), h = vload_up_to(before + k, n);
    const vfloat d = vload_up_to(d_state + k, n);
    const vfloat d_share = d * (c - h);  // with respect to a u
    const vfloat d_u = attention * d_share * u * (1.0f - u);
    const vfloat d_c = attention * u * d * (1.0f - c * c);
    const vfloat d_r = d_c * vload_up_to(hidden + 2 * units + k, n) * r * (1.0f - r);
    d_attention += d_share * u;
    vstore_up_to(update + k, d_u, n);
    vstore_up_to(reset + k, d_r, n);
    vstore_up_to(candidate + k, d_c, n);
    vstore_up_to(hidden + k, d_u, n);
    vstore_up_to(hidden + units + k, d_r, n);
    vstore_up_to(hidden + 2 * units + k, d_c * r, n);
    vstore_up_to(d_state + k, d - attention * u * d, n);
  }
  float sum = 0;
  for (std::size_t l = 0; l < kLanes; ++l) sum += d_attention[l];
  return sum;
}

}  // namespace

extern const GatedKernels LEASHED_ISA_NAME(gated_kernels);
const GatedKernels LEASHED_ISA_NAME(gated_kernels) = {forward, backward};

}  // namespace leashed
