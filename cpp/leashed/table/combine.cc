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

void Combiner::add(const std::uint64_t* ids, std::size_t n, std::uint32_t* places) {
  const std::size_t mask = (std::size_t{1} << (64 - shift_)) - 1;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t id = ids[i];
    std::size_t slot = id * 0x9E3779B97F4A7C15 >> shift_;
    while (slots_[slot].stamp == stamp_ && slots_[slot].id != id) slot = (slot + 1) & mask;
    if (slots_[slot].stamp != stamp_) {
      slots_[slot] = {id, stamp_, static_cast<std::uint32_t>(distinct_->size())};
      distinct_->push_back(id);
    }
    places[i] = slots_[slot].place;
  }
}

}  // namespace leashed
