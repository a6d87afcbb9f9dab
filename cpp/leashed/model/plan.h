// What a network computes: its layers grouped into the stages that have one kernel each, with the
// place of their parameters in theta.
#pragma once

#include <cstddef>
#include <vector>

#include "leashed/model/kernels/spatial.h"
#include "leashed/model/layer.h"

namespace leashed {

// A stage over images: a convolution, alone, with ReLU, or with ReLU and non-overlapping pooling;
// pooling; or ReLU.
struct SpatialStage {
  enum class Kind { conv, conv_relu, conv_relu_pool, pool, relu };
  Kind kind;
  ConvShape conv{};
  PoolShape pool{};
  std::size_t weight = 0, bias = 0;  // offsets in theta, of a convolution
  std::size_t inputs, outputs;       // values per image

  bool has_parameters() const { return kind <= Kind::conv_relu_pool; }
};

// A dense layer, with the ReLU after it if there is one.
struct DenseStage {
  std::size_t inputs, outputs;
  std::size_t weight, bias;  // offsets in theta
  bool trains_bias, relu;
};

struct Plan {
  // Throws Error, naming the layer by its index, where the layers do not fit each other.
  Plan(Shape input, const std::vector<Layer>& layers);

  std::size_t features;  // of a row
  std::vector<SpatialStage> spatial;
  std::vector<DenseStage> dense;
  std::size_t flat;  // values per example between the spatial and the dense stages
  std::size_t classes;
  std::size_t dimension = 0;
  std::vector<ParameterBlock> parameters;
  double flops = 0;  // of one example, forward and backward

  // Whether the gradient is needed with respect to the input of dense stage i, of spatial stage i.
  bool dense_input_gradient(std::size_t i) const { return i > 0 || first_conv < spatial.size(); }
  std::size_t first_conv;  // the first spatial stage with parameters, or spatial.size()
};

}  // namespace leashed
