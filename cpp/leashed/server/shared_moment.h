// Every grant with a term wants to be woken, and may be so a little later: moments that lie close
// together by how far they are ahead are one, so that what is due stays short however many grants a
// term has.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "leashed/policy/time.h"

namespace leashed {

// In nanoseconds, at `now`.
inline std::int64_t shared_moment(Time at, std::int64_t now) {
  constexpr std::uint64_t kMoments = 1024;  // at least this many until then
  const auto ahead = static_cast<std::uint64_t>(std::max<std::int64_t>(at.ns - now, 1));
  const auto apart = static_cast<std::int64_t>(std::bit_floor(ahead / kMoments | 1));
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() - apart;
  return at.ns > most ? at.ns : (at.ns + apart - 1) / apart * apart;
}

}  // namespace leashed
