#include "leashed/model/kernels/heads.h"

#include <algorithm>
#include <cmath>

#include "leashed/base/isa_table.h"
#include "leashed/base/simd.h"
#include "leashed/model/kernels/activation.h"
#include "leashed/model/kernels/exponential.h"

namespace leashed {
namespace {

// One output: its residual replaces it, its loss is returned.
double log_loss(float& o, float z) {
  const double m = o;
  const double e = std::exp(-std::fabs(m));
  o = static_cast<float>((m < 0 ? e / (1 + e) : 1 / (1 + e)) - z);
  return (m > 0 ? m : 0) + std::log1p(e) - z * m;
}
double hinge(float& o, float z) {
  const float sign = 2 * z - 1;
  const float loss = 1 - sign * o;
  o = loss <= 0 ? 0 : -sign;
  return loss <= 0 ? 0 : double{loss};
}

template <class Loss>
double one_against_rest(Loss loss, float* o, std::size_t rows, std::size_t n, std::size_t ld,
                        const std::int32_t* labels) {
  double sum = 0;
  for (std::size_t row = 0; row < rows; ++row, o += ld) {
    for (std::size_t k = 0; k < n; ++k) {
      const bool hit = n == 1 ? labels[row] != 0 : labels[row] == static_cast<std::int32_t>(k);
      sum += loss(o[k], hit ? 1.0f : 0.0f);
    }
  }
  return sum;
}

double residuals(Head head, float* o, std::size_t rows, std::size_t n, std::size_t ld,
                 const Targets& targets) {
  switch (head) {
    case Head::log_loss:
      return one_against_rest(log_loss, o, rows, n, ld, targets.labels);
    case Head::hinge:
      return one_against_rest(hinge, o, rows, n, ld, targets.labels);
    case Head::squared_error: {
      double sum = 0;
      for (std::size_t row = 0; row < rows; ++row, o += ld) {
        *o -= targets.values[row];
        sum += 0.5 * double{*o} * double{*o};
      }
      return sum;
    }
    case Head::softmax:
      break;
  }
  const ActivationKernels& activation = activation_kernels(Isa::LEASHED_ISA);
  const double sum = activation.softmax(o, rows, n, ld, targets.labels, o);
  activation.softmax_backward(o, rows, n, ld, targets.labels, 1.0f);
  return sum;
}

LEASHED_INLINE vfloat sigmoid(vfloat m) {
  const vfloat e = exp_negative(m < vfloat{} ? m : -m);
  return (m < vfloat{} ? e : vset(1.0f)) / (1.0f + e);
}

float log_loss_residuals(float* o, std::size_t rows, const std::int32_t* labels) {
  float sum = 0;
  std::size_t i = 0;
  for (; i < rows; i += kLanes) {
    float z[kLanes] = {};
    const std::size_t count = std::min(kLanes, rows - i);
    for (std::size_t j = 0; j < count; ++j) {
      z[j] = labels[i + j] != 0 ? 1.0f : 0.0f;
      sum += o[i + j];
    }
    vstore(o + i, sigmoid(vload(o + i)) - vload(z));
  }
  return sum;
}

void predict(Head head, float* o, std::size_t rows, std::size_t n, std::size_t ld) {
  if (head == Head::softmax) {
    activation_kernels(Isa::LEASHED_ISA).softmax(o, rows, n, ld, nullptr, o);
  } else if (head == Head::log_loss) {
    for (std::size_t row = 0; row < rows; ++row, o += ld) {
      for (std::size_t k = 0; k < n; ++k) {
        log_loss(o[k], 0);  // the residual of z = 0 is the probability
      }
    }
  }
}

}  // namespace

extern const HeadKernels LEASHED_ISA_NAME(head_kernels);
const HeadKernels LEASHED_ISA_NAME(head_kernels) = {residuals, log_loss_residuals, predict};

}  // namespace leashed
