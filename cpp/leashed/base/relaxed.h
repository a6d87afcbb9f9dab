// A short name for the order of counters and flags that hand nothing over.
#pragma once

#include <atomic>

namespace leashed {

inline constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace leashed
