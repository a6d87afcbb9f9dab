// What is drawn at random for a batch depends on it: the place of its first example in the stream
// of examples.
#pragma once

#include <cstdint>

namespace leashed {

struct Drawing {
  std::uint64_t seed = 0, place = 0;
};

}  // namespace leashed
