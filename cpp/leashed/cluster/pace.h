// When synchronisation takes place.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace leashed {

struct Pace {
  enum class Kind {
    background,  // by a thread of its own, as fast as it goes
    iterations,  // by a worker itself, after so many of its iterations
    seconds,     // and after so much time
  } kind = Kind::background;
  // gaps[i], in iterations or seconds, from the worker's iteration starts[i] on; starts[0] is 0.
  std::vector<std::uint64_t> starts;
  std::vector<double> gaps;

  double gap(std::uint64_t iteration) const {
    const auto after = std::upper_bound(starts.begin(), starts.end(), iteration);
    return gaps[static_cast<std::size_t>(after - starts.begin()) - 1];
  }
};

// How far a worker is that synchronises by itself.
struct WithinGap {
  std::uint64_t iterations = 0, since = 0;  // of its own, and of these since its last round
  double seconds = 0;                       // since then
  std::uint64_t turn = 0;                   // of parts, with servers
};

}  // namespace leashed
