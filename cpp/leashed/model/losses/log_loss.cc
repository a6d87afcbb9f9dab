// Σ_k log(1 + e^o_k) − z_k o_k with z_k = 1 where k is the row's class and 0 elsewhere (of one
// output: z is the class, of two): logistic regression, one class against the rest.
#include <cmath>

#include "leashed/kernels/exponential.h"
#include "leashed/model/losses/logistic.h"
#include "leashed/model/losses/rows.h"

namespace leashed {
namespace {

double residuals(const float* outputs, float* out, std::size_t rows, std::size_t n, std::size_t ld,
                 const Targets& targets, float scale) {
  const auto output_loss = [](float o, float& r, float z, double& sum) {
    const Judged judged = judge(o, z);
    r = judged.residual;
    sum += judged.loss;
  };
  return one_against_rest(output_loss, outputs, out, rows, n, ld, targets, scale);
}

// Σ log(1 + e^m) − z m over rows that all weigh the same: Σ log(1 + e) with e = e^−|m| is the
// logarithm of a product.
class Sum {
 public:
  inline __attribute__((always_inline)) void add(vfloat m, vfloat e, vfloat z) {
    product_ *= 1.0f + e;
    linear_ += (m > vfloat{} ? m : vfloat{}) - z * m;
    if (++factors_ == kFactors) fold();
  }
  double total() {
    fold();
    for (std::size_t j = 0; j < kLanes; ++j) logarithms_ += double{linear_[j]};
    return logarithms_;
  }

 private:
  // Each factor is at most 2: a lane's product stays within float, that of all lanes in double.
  static constexpr std::size_t kFactors = 32;

  void fold() {
    double product = 1;
    for (std::size_t j = 0; j < kLanes; ++j) product *= double{product_[j]};
    logarithms_ += std::log(product);
    product_ = vset(1.0f);
    factors_ = 0;
  }

  vfloat product_ = vset(1.0f), linear_ = {};
  double logarithms_ = 0;
  std::size_t factors_ = 0;
};

float residuals_alone(float* o, std::size_t rows, const Targets& targets, double* loss) {
  float sum = 0;
  Sum losses;
  double others = 0;
  for (std::size_t i = 0; i < rows; i += kLanes) {
    float z[kLanes] = {};
    const std::size_t count = rows - i < kLanes ? rows - i : kLanes;
    for (std::size_t j = 0; j < count; ++j) {
      z[j] = targets.labels[i + j] != 0 ? 1.0f : 0.0f;
      sum += o[i + j];
    }
    const vfloat m = vload(o + i);
    const vfloat e = exp_negative(m < vfloat{} ? m : -m);
    vstore(o + i, (m < vfloat{} ? e : vset(1.0f)) / (1.0f + e) - vload(z));
    if (!loss) continue;
    if (count == kLanes && !targets.weights) {
      losses.add(m, e, vload(z));
      continue;
    }
    for (std::size_t j = 0; j < count; ++j) {
      const double weight = targets.weights ? double{targets.weights[i + j]} : 1;
      others += weight * (std::log1p(double{e[j]}) + (m[j] > 0 ? m[j] : 0) - z[j] * m[j]);
    }
  }
  if (loss) *loss = losses.total() + others;
  if (targets.weights) {
    for (std::size_t i = 0; i < rows; ++i) o[i] *= targets.weights[i];
  }
  return sum;
}

}  // namespace

extern const Loss LEASHED_ISA_NAME(log_loss_loss);
constinit const Loss LEASHED_ISA_NAME(log_loss_loss) = {
    .name = "log_loss",
    .kind = Classes::two_of_one,
    .curvature = 0.25,
    .residuals = residuals,
    .residuals_alone = residuals_alone,
    .predict = predict_logistic,
    .correct = count_correct,
};

}  // namespace leashed
