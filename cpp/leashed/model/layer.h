// What is known of a network's layers; how each is planned is in layers/.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "leashed/base/choice.h"

namespace leashed {

// A layer is chosen by name, with its sizes: what its file in layers/ reads of them.
using Layer = Choice;

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

// Where the variables end that these are, of so many parameters.
inline std::vector<std::size_t> ends_of(const std::vector<ParameterBlock>& blocks,
                                        std::size_t dimension) {
  std::vector<std::size_t> ends;
  for (std::size_t i = 1; i < blocks.size(); ++i) ends.push_back(blocks[i].offset);
  ends.push_back(dimension);
  return ends;
}

}  // namespace leashed
