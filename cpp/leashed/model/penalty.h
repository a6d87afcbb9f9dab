// The penalty λ/2 |w|² over every parameter that is no bias.
#pragma once

#include <vector>

#include "leashed/model/layer.h"

namespace leashed {

// Adds its gradient, and returns it.
double penalise(double l2, const std::vector<ParameterBlock>& parameters, const float* theta,
                float* gradient);

}  // namespace leashed
