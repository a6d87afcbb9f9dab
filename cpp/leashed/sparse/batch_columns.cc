#include "leashed/sparse/batch_columns.h"

namespace leashed {

void BatchColumns::collect(const SparseRows& rows, std::size_t count) {
  columns_.clear();
  of_entry_.clear();
  for (std::int64_t j = rows.offsets[0]; j < rows.offsets[count]; ++j) {
    const std::int32_t column = rows.columns[j];
    std::int32_t& place = place_[static_cast<std::size_t>(column)];
    // What was left there by another batch may be any place.
    const auto found = static_cast<std::size_t>(place);
    if (found >= columns_.size() || columns_[found] != column) {
      place = static_cast<std::int32_t>(columns_.size());
      columns_.push_back(column);
    }
    of_entry_.push_back(place);
  }
}

}  // namespace leashed
