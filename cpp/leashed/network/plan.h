// What a network computes: its layers grouped into the stages that have one kernel each, with the
// place of their parameters in theta.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "leashed/base/isa.h"
#include "leashed/model/dense_chain.h"
#include "leashed/model/layer.h"
#include "leashed/network/spatial_stage.h"

namespace leashed {

struct Plan {
  // Throws Error, naming the layer by its index, where the layers do not fit each other.
  Plan(Shape input, const std::vector<Layer>& layers, Isa isa);

  std::size_t features;  // of a row
  std::vector<std::unique_ptr<SpatialStage>> spatial;
  std::vector<DenseStage> dense;
  std::size_t flat;  // values per example between the spatial and the dense stages
  std::size_t classes;
  std::size_t dimension = 0;
  std::vector<ParameterBlock> parameters;
  double flops = 0;  // of one example, forward and backward

  // Whether the gradient is needed with respect to the input of dense stage i.
  bool dense_input_gradient(std::size_t i) const { return i > 0 || first_trained < spatial.size(); }
  std::size_t first_trained;  // the first spatial stage with parameters, or spatial.size()
};

}  // namespace leashed
