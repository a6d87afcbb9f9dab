#include "leashed/model/penalty.h"

#include <functional>
#include <numeric>

namespace leashed {

double penalise(double l2, const std::vector<ParameterBlock>& parameters, const float* theta,
                float* gradient) {
  double squares = 0;
  for (const ParameterBlock& block : parameters) {
    if (block.shape.size() == 1) continue;  // a bias
    const std::size_t size = std::accumulate(block.shape.begin(), block.shape.end(), std::size_t{1},
                                             std::multiplies<>());
    for (std::size_t i = block.offset; i < block.offset + size; ++i) {
      gradient[i] += static_cast<float>(l2) * theta[i];
      squares += double{theta[i]} * double{theta[i]};
    }
  }
  return 0.5 * l2 * squares;
}

}  // namespace leashed
