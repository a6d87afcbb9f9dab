#include "leashed/model/head_pass.h"

#include <algorithm>

namespace leashed {

double HeadPass::loss(const float* outputs, std::size_t rows, const Targets& targets, float scale) {
  return loss_.residuals(outputs, judged_.data(), rows, outputs_, stride(), targets, scale);
}

void HeadPass::logits(const float* outputs, std::size_t rows, float* out) const {
  for (std::size_t i = 0; i < rows; ++i) {
    std::copy_n(outputs + i * stride(), outputs_, out + i * outputs_);
  }
}

std::uint64_t HeadPass::correct(const float* outputs, std::size_t rows,
                                const Targets& targets) const {
  if (!loss_.correct) return 0;
  return loss_.correct(outputs, rows, outputs_, stride(), targets.labels);
}

void HeadPass::predict(const float* outputs, std::size_t rows, float* out) {
  const float* judged = outputs;
  if (loss_.predict) {
    std::copy_n(outputs, rows * stride(), judged_.data());
    loss_.predict(judged_.data(), rows, outputs_, stride());
    judged = judged_.data();
  }
  for (std::size_t i = 0; i < rows; ++i) {
    std::copy_n(judged + i * stride(), outputs_, out + i * outputs_);
  }
}

}  // namespace leashed
