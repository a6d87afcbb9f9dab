#include "leashed/sparse/distinct_columns.h"

#include <cstddef>

namespace leashed {
namespace {

bool some_row_repeats(const SparseRows& sparse, std::size_t rows, std::size_t features) {
  std::vector<std::int64_t> last(features, -1);  // the entry where a column came last
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::int64_t j = sparse.offsets[i]; j < sparse.offsets[i + 1]; ++j) {
      std::int64_t& seen = last[static_cast<std::size_t>(sparse.columns[j])];
      if (seen >= sparse.offsets[i]) return true;
      seen = j;
    }
  }
  return false;
}

}  // namespace

DistinctColumns::DistinctColumns(const SparseRows& sparse, std::size_t rows, std::size_t features)
    : view_(sparse) {
  if (!some_row_repeats(sparse, rows, features)) return;
  std::vector<std::int64_t> place(features, -1);  // where a column was put last
  offsets_.reserve(rows + 1);
  offsets_.push_back(0);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::int64_t j = sparse.offsets[i]; j < sparse.offsets[i + 1]; ++j) {
      const float value = sparse.values ? sparse.values[j] : 1.0f;
      std::int64_t& put = place[static_cast<std::size_t>(sparse.columns[j])];
      if (put >= offsets_.back()) {
        values_[static_cast<std::size_t>(put)] += value;
        continue;
      }
      put = static_cast<std::int64_t>(columns_.size());
      columns_.push_back(sparse.columns[j]);
      values_.push_back(value);
    }
    offsets_.push_back(static_cast<std::int64_t>(columns_.size()));
  }
  view_ = {offsets_.data(), columns_.data(), values_.data()};
}

}  // namespace leashed
