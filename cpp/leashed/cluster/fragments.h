// The pieces in which a vector goes over the wire and lies on servers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace leashed {

// Floats: with its headers just less than one segment over loopback (65,483 bytes).
inline constexpr std::size_t kFragment = 16320;

inline std::size_t fragments_of(std::size_t dimension) {
  return (dimension + kFragment - 1) / kFragment;
}

struct Range {
  std::size_t begin, end;
};

inline Range fragment(std::size_t index, std::size_t dimension) {
  return {index * kFragment, std::min(dimension, (index + 1) * kFragment)};
}

// Ranges of a vector, ascending; those that follow each other become one.
class Covered {
 public:
  void clear() { ranges_.clear(); }
  void add(Range range) {
    if (!ranges_.empty() && ranges_.back().end == range.begin) {
      ranges_.back().end = range.end;
    } else if (range.begin < range.end) {
      ranges_.push_back(range);
    }
  }
  bool empty() const { return ranges_.empty(); }
  // Calls f(begin, end) for what of [begin, end) is covered.
  template <class F>
  void each(std::size_t begin, std::size_t end, const F& f) const {
    for (const Range& range : ranges_) {
      const std::size_t from = std::max(begin, range.begin), to = std::min(end, range.end);
      if (from < to) f(from, to);
    }
  }

 private:
  std::vector<Range> ranges_;
};

}  // namespace leashed
