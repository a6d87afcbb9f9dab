// A network as the list of its layers, and where each layer's parameters lie in theta.
#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

namespace leashed {

// out = x W + b. Parameters: W [inputs][outputs], then b [outputs], whose gradient is 0 where the
// bias is not trained.
struct Dense {
  std::size_t outputs;
  bool trains_bias = true;
};
// Cross-correlation. Parameters: W [filters][channels][kernel_h][kernel_w], then b [filters].
struct Conv2d {
  std::size_t filters, kernel_h, kernel_w, stride = 1, padding = 0;
};
// Maximum over windows; rows and columns that fill no window are dropped.
struct MaxPool {
  std::size_t size, stride;
};
struct Relu {};

using Layer = std::variant<Dense, Conv2d, MaxPool, Relu>;

// What flows between layers: channels × height × width values per example, in that order
// (a flat vector is {n, 1, 1}); flattening for a dense layer keeps the order.
struct Shape {
  std::size_t channels, height, width;
  std::size_t size() const { return channels * height * width; }
};

// Where one layer's parameters lie in theta, and its fan-in and fan-out (for Glorot and He).
struct ParameterBlock {
  std::string name;  // "<index>.weight" or "<index>.bias", the index of the layer in the list
  std::size_t offset;
  std::vector<std::size_t> shape;
  std::size_t fan_in, fan_out;
};

}  // namespace leashed
