#include "leashed/update/rule.h"

#include "leashed/base/cache.h"

namespace leashed {

Coefficients Rule::coefficients(const Step& step) const {
  Coefficients c{};
  const double rate = lr(step.t);
  c.scale = static_cast<float>(step.scale);
  c.clip = clip();
  c.coupled = options_.decoupled ? 0 : static_cast<float>(options_.weight_decay);
  c.shrink = options_.decoupled ? static_cast<float>(1 - rate * options_.weight_decay) : 1;
  c.keep = static_cast<float>(options_.swap.keep(step.t));
  c.lr = static_cast<float>(rate);
  coefficients(step.t, c);
  return c;
}

double Rule::apply(float* next, const float* current, std::size_t stride, const float* gradient,
                   std::size_t begin, std::size_t end, const Step& step, bool measure) const {
  const Coefficients c = coefficients(step);
  const std::size_t touched = (2 * (1 + states()) + 1) * stride * sizeof(float);
  const bool stream =
      step.stores == Stores::streamed || (next != current && exceeds_caches(touched));
  const Pass pass = passes_(stream ? Mode::streamed : Mode::cached, measure, c);
  return pass(next, current, stride, gradient, begin, end, c);
}

double Rule::apply_racy(float* buffer, std::size_t stride, const float* gradient, std::size_t begin,
                        std::size_t end, const Step& step, bool measure) const {
  const Coefficients c = coefficients(step);
  const Mode mode = step.stores == Stores::streamed ? Mode::racy_streamed : Mode::racy;
  return passes_(mode, measure, c)(buffer, buffer, stride, gradient, begin, end, c);
}

}  // namespace leashed
