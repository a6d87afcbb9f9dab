#pragma once

#include <cstddef>

namespace leashed {

// The parameters of a model of sparse rows: `width` of each column, side by side, and `intercepts`
// that belong to none.
struct ColumnShape {
  std::size_t width = 1;
  std::size_t intercepts = 1;

  std::size_t dimension(std::size_t columns) const { return columns * width + intercepts; }
};

}  // namespace leashed
