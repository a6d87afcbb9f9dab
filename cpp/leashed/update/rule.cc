#include "leashed/update/rule.h"

#include <algorithm>

#include "leashed/base/cache.h"

namespace leashed {

void Rule::initialise(float* buffer, const Layout& layout, const float* theta) const {
  std::fill_n(buffer, layout.length(), 0.0f);
  std::copy_n(theta, layout.dimension, buffer);
  for (std::size_t k = 1; k <= layout.states; ++k) {
    std::fill_n(buffer + k * layout.stride(), layout.dimension,
                k <= passes_.states ? initial_state() : 0.0f);
  }
}

Coefficients Rule::coefficients(const Step& step) const {
  Coefficients c{};
  const double rate = options_.lr->at(step.t);
  c.scale = static_cast<float>(options_.maximize ? -step.scale : step.scale);
  c.clip = clip();
  c.coupled = options_.decoupled ? 0 : static_cast<float>(options_.weight_decay);
  c.shrink = options_.decoupled ? static_cast<float>(1 - rate * options_.weight_decay) : 1;
  c.keep = static_cast<float>(options_.swap.keep(step.t));
  c.swaps = options_.swap.period > 0;
  c.lr = static_cast<float>(rate);
  coefficients(rate, step.t - step.missed, c);
  return c;
}

double Rule::apply(float* next, const float* current, std::size_t stride, const float* gradient,
                   std::size_t begin, std::size_t end, const Step& step, bool measure) const {
  const Coefficients c = coefficients(step);
  const std::size_t touched = (2 * (1 + states()) + 1) * stride * sizeof(float);
  const bool stream =
      step.stores == Stores::streamed || (next != current && exceeds_caches(touched));
  const Pass pass = passes_(stream ? Mode::streamed : Mode::cached, measure, c);
  const double squares = pass(next, current, stride, gradient, begin, end, c);
  if (options_.truncation.l1 > 0) truncate(next, current, stride, begin, end, step);
  return squares;
}

double Rule::apply_racy(float* buffer, std::size_t stride, const float* gradient, std::size_t begin,
                        std::size_t end, const Step& step, bool measure) const {
  const Coefficients c = coefficients(step);
  const Mode mode = step.stores == Stores::streamed ? Mode::racy_streamed : Mode::racy;
  const double squares = passes_(mode, measure, c)(buffer, buffer, stride, gradient, begin, end, c);
  if (options_.truncation.l1 > 0) truncate(buffer, buffer, stride, begin, end, step);
  return squares;
}

void Rule::leave(float* next, const float* current, std::size_t stride, std::size_t begin,
                 std::size_t end, const Step& step) const {
  if (next != current) {
    for (std::size_t k = 0; k <= states(); ++k) {
      std::copy(current + k * stride + begin, current + k * stride + end,
                next + k * stride + begin);
    }
  }
  const double keep = options_.swap.keep(step.t);
  if (keep == 1) return;
  for (std::size_t k = passes_.states - passes_.squares + 1; k <= passes_.states; ++k) {
    kernels_.scale_racy(next + k * stride + begin, static_cast<float>(keep), end - begin);
  }
}

void Rule::truncate(float* next, const float* current, std::size_t stride, std::size_t begin,
                    std::size_t end, const Step& step) const {
  float* above = next + (passes_.states + 1) * stride;
  float* below = above + stride;
  if (next != current) {
    for (float* due : {above, below}) {
      std::copy(current + (due - next) + begin, current + (due - next) + end, due + begin);
    }
  }
  const Truncation& part = options_.truncation;
  const std::size_t first = std::clamp(part.begin, begin, end);
  const std::size_t last = std::clamp(part.end, first, end);
  const auto penalty = static_cast<float>(options_.lr->at(step.t) * part.l1);
  kernels_.truncate_racy(next + first, above + first, below + first, penalty, last - first);
}

}  // namespace leashed
