#include "leashed/data/indexed_batches.h"

#include <algorithm>
#include <utility>

namespace leashed {

void IndexedBatches::fill_span(std::uint64_t first, std::size_t count, Batch& batch) const {
  batch.indices.resize(count);
  batch.rows.resize(count);
  sampler_.span(first, count, batch.indices.data());
  for (std::size_t i = 0; i < count; ++i) {
    batch.rows[i] = data_.x + batch.indices[i] * data_.features;
  }
  const auto gather = [&](const auto* from, auto& to, std::size_t width = 1) {
    if (!from) return from;
    to.resize(count * width);
    if (width == 1) {
      for (std::size_t i = 0; i < count; ++i) to[i] = from[batch.indices[i]];
    } else {
      for (std::size_t i = 0; i < count; ++i) {
        std::copy_n(from + batch.indices[i] * width, width, to.data() + i * width);
      }
    }
    return std::as_const(to).data();
  };
  Targets& targets = batch.view.targets;
  targets.labels = gather(data_.targets.labels, batch.labels);
  targets.values = gather(data_.targets.values, batch.values, data_.targets.width);
  targets.width = data_.targets.width;
  targets.weights = gather(data_.targets.weights, batch.weights);
  targets.users = gather(data_.targets.users, batch.users);
  batch.view.rows = batch.rows.data();
  batch.view.size = count;
  batch.view.drawing = {seed_, first};
  if (!data_.ids.empty())
    batch.view.columns = batch.columns.gather(data_.ids, batch.indices, batch.view.drawing);
}

}  // namespace leashed
