#include "leashed/table/combine.h"

#include <algorithm>
#include <bit>

namespace leashed {

void Combiner::begin(std::size_t entries, std::vector<std::uint64_t>& distinct) {
  // At most half full.
  const std::size_t wanted = std::bit_ceil(std::max<std::size_t>(2 * entries, 16));
  if (slots_.size() < wanted || ++stamp_ == 0) {
    slots_.assign(std::max(wanted, slots_.size()), Slot{0, 0, 0});
    stamp_ = 1;
  }
  // A small batch uses the first slots alone.
  shift_ = 64 - static_cast<unsigned>(std::bit_width(wanted) - 1);
  distinct.clear();
  distinct_ = &distinct;
}

}  // namespace leashed
