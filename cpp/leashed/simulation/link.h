// A link of virtual time: what is sent over it goes one after the other.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "leashed/simulation/virtual_clock.h"

namespace leashed {

inline std::int64_t transfer_ns(double bytes, double bandwidth) { return in_ns(bytes / bandwidth); }

class Link {
 public:
  // When so many bytes, sent now, are there.
  std::int64_t carry(std::int64_t now, std::size_t bytes, double bandwidth, double latency) {
    free_ = after(std::max(free_, now), transfer_ns(static_cast<double>(bytes), bandwidth));
    return after(free_, in_ns(latency));
  }

 private:
  std::int64_t free_ = 0;  // from when on
};

}  // namespace leashed
