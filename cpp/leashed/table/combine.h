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
  // Whether an id is new is as good as random: nothing branches on it. And nothing that is stored
  // makes the compiler load these again.
  Slot* const slots = slots_.data();
  const std::uint32_t stamp = stamp_;
  const unsigned shift = shift_;
  const std::size_t mask = (std::size_t{1} << (64 - shift)) - 1;
  const std::size_t before = distinct_->size();
  distinct_->resize(before + n);
  std::uint64_t* const distinct = distinct_->data();
  auto count = static_cast<std::uint32_t>(before);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t id = ids[i];
    std::size_t at = id * 0x9E3779B97F4A7C15 >> shift;
    while ((slots[at].stamp == stamp) & (slots[at].id != id)) at = (at + 1) & mask;
    const std::uint32_t is_new = slots[at].stamp != stamp, known = slots[at].place;
    const std::uint32_t place = known ^ ((known ^ count) & -is_new);
    slots[at] = {id, stamp, place};
    distinct[count] = id;
    count += is_new;
    places[i] = place;
  }
  distinct_->resize(count);
  for (std::size_t i = before; i < count; ++i) first(distinct[i]);
}

}  // namespace leashed
