// Numbers of a policy server that outlive its process, in memory that is written to a file: pushes
// that its mode was ever told of, those among them that a restart has undone, and their examples.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "leashed/base/relaxed.h"

namespace leashed {

// One of so many examples is told next: counted before it is of any use, so that none is forgotten.
// ever: both numbers; empty: nobody asks for them.
inline void count_ever(std::span<std::uint64_t> ever, std::uint64_t examples) {
  if (ever.empty()) return;
  // Relaxed: counts for whoever looks on; they hand nothing over.
  std::atomic_ref(ever[0]).fetch_add(1, kRelaxed);
  std::atomic_ref(ever[1]).fetch_add(examples, kRelaxed);
}

}  // namespace leashed
