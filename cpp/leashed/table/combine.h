// The distinct ids of a batch, in the order of their first appearance, and the place of each
// entry's id among them: a hash table of one thread's, whose slots say by a stamp whether they are
// of this batch, so that none is ever cleared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace leashed {

class Combiner {
 public:
  // Of a batch of so many entries at most; their ids go to `distinct`.
  void begin(std::size_t entries, std::vector<std::uint64_t>& distinct);
  // n more entries; first(id) of each that has not come before.
  template <class First>
  void add(const std::uint64_t* ids, std::size_t n, std::uint32_t* places, const First& first);

 private:
  struct Slot {
    std::uint64_t id;
    std::uint32_t stamp, place;
  };

  std::vector<Slot> slots_;
  std::uint32_t stamp_ = 0;
  unsigned shift_ = 0;  // of a hash, to a slot's number
  std::vector<std::uint64_t>* distinct_ = nullptr;
};

template <class First>
void Combiner::add(const std::uint64_t* ids, std::size_t n, std::uint32_t* places,
                   const First& first) {
  const std::size_t mask = (std::size_t{1} << (64 - shift_)) - 1;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t id = ids[i];
    std::size_t slot = id * 0x9E3779B97F4A7C15 >> shift_;
    while (slots_[slot].stamp == stamp_ && slots_[slot].id != id) slot = (slot + 1) & mask;
    if (slots_[slot].stamp != stamp_) {
      slots_[slot] = {id, stamp_, static_cast<std::uint32_t>(distinct_->size())};
      distinct_->push_back(id);
      first(id);
    }
    places[i] = slots_[slot].place;
  }
}

}  // namespace leashed
