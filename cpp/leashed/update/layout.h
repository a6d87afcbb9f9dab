// Where theta and a rule's state lie in one buffer: [θ | state 1 | … | state S | last updates],
// each part from a cache line's start on, theta first. What reads parameters sees them at the start
// of the buffer, whatever the rule.
#pragma once

#include <cstddef>

#include "leashed/base/aligned.h"

namespace leashed {

struct Layout {
  std::size_t dimension;   // d, of theta and of each state
  std::size_t states = 0;  // S
  std::size_t blocks = 0;  // variables whose last update's norm is kept (stage-aware staleness)

  // From one part to the next.
  std::size_t stride() const { return (dimension + kLine - 1) / kLine * kLine; }
  // Floats in the buffer.
  std::size_t length() const {
    return states + blocks == 0 ? dimension : (1 + states) * stride() + blocks;
  }
  // Offset of the norms.
  std::size_t last_updates() const { return (1 + states) * stride(); }

 private:
  static constexpr std::size_t kLine = kCacheLine / sizeof(float);
};

}  // namespace leashed
