#include "leashed/simulation/load.h"

#include <algorithm>
#include <cmath>

#include "leashed/simulation/virtual_clock.h"

namespace leashed {

Load::Load(const Choice& choice) : loads_(choice.table("load")) {
  for (const double seconds : choice.table("load_seconds")) moments_.push_back(in_ns(seconds));
  if (loads_.empty() || loads_.size() != moments_.size() || moments_.front() != 0 ||
      std::ranges::adjacent_find(moments_, std::ranges::greater_equal{}) != moments_.end()) {
    throw Error("a load needs a value for each of its seconds, which begin at 0 and rise");
  }
  const double every = choice["load_every"];
  if (every > 0) every_ = std::max<std::int64_t>(1, in_ns(every));
}

std::uint64_t Load::spell(std::int64_t ns, double own) const {
  const auto begun = static_cast<std::uint64_t>(own * static_cast<double>(every_));
  return (static_cast<std::uint64_t>(ns) + begun) / static_cast<std::uint64_t>(every_);
}

double Load::at(std::int64_t ns) const {
  if (loads_.size() == 1) return loads_[0];
  ns %= moments_.back();
  const auto next = std::ranges::upper_bound(moments_, ns);
  const auto i = static_cast<std::size_t>(next - moments_.begin());
  const double share = static_cast<double>(ns - moments_[i - 1]) /
                       static_cast<double>(moments_[i] - moments_[i - 1]);
  return std::lerp(loads_[i - 1], loads_[i], share);
}

}  // namespace leashed
