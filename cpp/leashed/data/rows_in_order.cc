#include "leashed/data/rows_in_order.h"

#include <numeric>

namespace leashed {

void fill_in_order(const DatasetView& data, std::size_t first, std::size_t count, Batch& batch) {
  batch.view = {nullptr, data.targets.from(first), count};
  if (data.sparse) {
    batch.view.sparse = data.sparse.from(first);
    return;
  }
  batch.rows.resize(count);
  for (std::size_t i = 0; i < count; ++i) batch.rows[i] = data.x + (first + i) * data.features;
  batch.view.rows = batch.rows.data();
  if (data.ids.empty()) return;
  batch.indices.resize(count);
  std::iota(batch.indices.begin(), batch.indices.end(), first);
  batch.view.columns = batch.columns.gather(data.ids, batch.indices, {0, first});
}

}  // namespace leashed
