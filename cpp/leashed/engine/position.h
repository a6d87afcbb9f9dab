#pragma once

#include <cstdint>

namespace leashed {

// How far a training has come that goes on from a checkpoint; stop rules that count do so from its
// beginning. The parameters and the rule's state are the discipline's.
struct Position {
  std::uint64_t updates = 0;  // published: the discipline's version
  std::uint64_t batches = 0;  // used
};

}  // namespace leashed
