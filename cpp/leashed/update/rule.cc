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
  c.lr = static_cast<float>(rate);
  coefficients(step.t, c);
  return c;
}

double Rule::apply(float* next, const float* current, std::size_t stride, const float* gradient,
                   std::size_t begin, std::size_t end, const Step& step, bool measure) const {
  const Coefficients c = coefficients(step);
  const std::size_t touched = (2 * (1 + states()) + 1) * stride * sizeof(float);
  if (step.stores == Stores::streamed || (next != current && exceeds_caches(touched))) {
    return (measure ? passes_.measured_stream : passes_.stream)(next, current, stride, gradient,
                                                                begin, end, c);
  }
  return (measure ? passes_.measured : passes_.apply)(next, current, stride, gradient, begin, end,
                                                      c);
}

double Rule::apply_racy(float* buffer, std::size_t stride, const float* gradient, std::size_t begin,
                        std::size_t end, const Step& step, bool measure) const {
  const bool stream = step.stores == Stores::streamed;
  const Pass pass = measure ? (stream ? passes_.measured_racy_stream : passes_.measured_racy)
                            : (stream ? passes_.racy_stream : passes_.racy);
  return pass(buffer, buffer, stride, gradient, begin, end, coefficients(step));
}

}  // namespace leashed
