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
  // Bytes that it keeps from one batch to the next.
  std::size_t bytes() const { return slots_.capacity() * sizeof(Slot); }
  // n more entries.
  void add(const std::uint64_t* ids, std::size_t n, std::uint32_t* places);

 private:
  struct Slot {
    std::uint64_t id;
    std::uint32_t stamp, place;
  };

  static bool is_of_another(const Slot& slot, std::uint64_t id, std::uint32_t stamp);

  std::vector<Slot> slots_;
  std::uint32_t stamp_ = 0;
  unsigned shift_ = 0;  // of a hash, to a slot's number
  std::vector<std::uint64_t>* distinct_ = nullptr;
};

}  // namespace leashed
