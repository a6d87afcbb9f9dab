#pragma once

#include <cstdint>

namespace leashed {

struct Time {
  std::int64_t ns;  // whole numbers, so that order is exact
};

}  // namespace leashed
