#include "leashed/columns/field_finder.h"

#include <bit>

namespace leashed {

FieldFinder::FieldFinder(std::size_t fields)
    : present_((fields + 63) / 64), place_(fields), entries_of_(fields) {}

RowFields FieldFinder::find(const std::uint16_t* field_of, const SparseRows& row) {
  const auto length = static_cast<std::size_t>(row.offsets[1] - row.offsets[0]);
  const std::int32_t* columns = row.columns + row.offsets[0];
  entries_.resize(length);
  for (std::size_t j = 0; j < length; ++j) {
    const std::uint16_t field = field_of[columns[j]];
    entries_[j].field = field;
    present_[field / 64] |= std::uint64_t{1} << field % 64;
  }
  runs_.clear();
  std::uint32_t count = 0;
  for (std::size_t word = 0; word < present_.size(); ++word) {
    for (; present_[word] != 0; present_[word] &= present_[word] - 1) {
      const auto field = static_cast<std::uint32_t>(word * 64) +
                         static_cast<std::uint32_t>(std::countr_zero(present_[word]));
      if (runs_.empty() || field != runs_.back().first + runs_.back().length) {
        runs_.push_back({field, count, 0});
      }
      ++runs_.back().length;
      place_[field] = count++;
      entries_of_[field] = 0;
    }
  }
  for (FieldEntry& entry : entries_) {
    entry.place = place_[entry.field];
    entry.first = entries_of_[entry.field]++ == 0;
  }
  for (FieldEntry& entry : entries_) entry.alone = entries_of_[entry.field] == 1;
  return {runs_.data(), runs_.size(), entries_.data(), count};
}

}  // namespace leashed
