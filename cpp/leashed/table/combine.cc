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

// Of this batch, and another id's: which is seldom, and so foreseen.
bool Combiner::is_of_another(const Slot& slot, std::uint64_t id, std::uint32_t stamp) {
  bool another = (slot.id != id) & (slot.stamp == stamp);
  asm("" : "+r"(another));  // else the compiler branches on one, and then on the other
  return another;
}

// Nobody can foresee whether an id has come before: what is done is the same, without a branch.
void Combiner::add(const std::uint64_t* ids, std::size_t n, std::uint32_t* places) {
  const std::size_t mask = (std::size_t{1} << (64 - shift_)) - 1;
  const std::uint32_t stamp = stamp_;
  std::size_t count = distinct_->size();
  distinct_->resize(count + n);
  std::uint64_t* const distinct = distinct_->data();
  Slot* const slots = slots_.data();
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t id = ids[i];
    std::size_t at = id * 0x9E3779B97F4A7C15 >> shift_;
    while (is_of_another(slots[at], id, stamp)) at = (at + 1) & mask;
    const std::uint32_t is_new = slots[at].stamp != stamp;
    const std::uint32_t before = slots[at].place;
    const std::uint32_t place = before ^ ((before ^ static_cast<std::uint32_t>(count)) & -is_new);
    slots[at] = {id, stamp, place};
    distinct[count] = id;
    count += is_new;
    places[i] = place;
  }
  distinct_->resize(count);
}

}  // namespace leashed
