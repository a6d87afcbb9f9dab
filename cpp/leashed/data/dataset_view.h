#pragma once

#include <cstddef>
#include <cstdint>

namespace leashed {

// A dataset that somebody else owns: row-major x [rows][features] and one label per row.
struct DatasetView {
  const float* x;
  const std::int32_t* labels;
  std::size_t rows;
  std::size_t features;
};

}  // namespace leashed
