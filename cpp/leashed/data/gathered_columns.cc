#include "leashed/data/gathered_columns.h"

#include <algorithm>
#include <limits>
#include <string>

#include "leashed/base/error.h"

namespace leashed {

IdColumn GatheredColumns::Memory::single(const IdFeature& feature,
                                         std::span<const std::size_t> rows) {
  ids.resize(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) ids[i] = feature.ids[rows[i] * feature.stride];
  return {ids.data(), nullptr, nullptr};
}

IdColumn GatheredColumns::Memory::bags(const IdFeature& feature,
                                       std::span<const std::size_t> rows) {
  offsets.resize(rows.size() + 1);
  offsets[0] = 0;
  std::uint64_t entries = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    entries += static_cast<std::uint64_t>(feature.offsets[rows[i] + 1] - feature.offsets[rows[i]]);
    if (entries > std::numeric_limits<std::uint32_t>::max()) {
      throw Error("a batch of " + std::to_string(rows.size()) +
                  " rows has 2^32 ids or more of one feature; make batch_size smaller");
    }
    offsets[i + 1] = static_cast<std::uint32_t>(entries);
  }
  const auto copy = [&](const auto* from, auto& to) {
    to.resize(entries);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::copy(from + feature.offsets[rows[i]], from + feature.offsets[rows[i] + 1],
                to.data() + offsets[i]);
    }
  };
  copy(feature.ids, ids);
  if (feature.weights) copy(feature.weights, weights);
  return {ids.data(), offsets.data(), feature.weights ? weights.data() : nullptr};
}

std::span<const IdColumn> GatheredColumns::gather(std::span<const IdFeature> features,
                                                  std::span<const std::size_t> rows) {
  memory_.resize(features.size());
  columns_.resize(features.size());
  for (std::size_t f = 0; f < features.size(); ++f) {
    const auto& feature = features[f];
    columns_[f] =
        feature.offsets ? memory_[f].bags(feature, rows) : memory_[f].single(feature, rows);
  }
  return columns_;
}

}  // namespace leashed
