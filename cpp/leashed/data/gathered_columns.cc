#include "leashed/data/gathered_columns.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>

#include "leashed/base/aligned.h"
#include "leashed/base/error.h"

namespace leashed {
namespace {

bool lie_side_by_side(const IdFeature& left, const IdFeature& right) {
  return !right.offsets && right.ids == left.ids + 1 && right.stride == left.stride;
}

}  // namespace

IdColumn GatheredColumns::Memory::bags(const IdFeature& feature,
                                       std::span<const std::size_t> rows) {
  offsets.resize(rows.size() + 1);
  offsets[0] = 0;
  std::uint64_t entries = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t* const offset = feature.offsets + rows[i];
    entries +=
        std::min<std::uint64_t>(static_cast<std::uint64_t>(offset[1] - offset[0]), feature.most);
    if (entries > std::numeric_limits<std::uint32_t>::max()) {
      throw Error("a batch of " + std::to_string(rows.size()) +
                  " rows has 2^32 ids or more of one feature; make batch_size smaller");
    }
    offsets[i + 1] = static_cast<std::uint32_t>(entries);
  }
  const auto copy = [&](const auto* from, auto& to) {
    to.resize(entries);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::copy_n(from + feature.offsets[rows[i]], offsets[i + 1] - offsets[i],
                  to.data() + offsets[i]);
    }
  };
  copy(feature.ids, ids);
  if (feature.weights) copy(feature.weights, weights);
  return {ids.data(), offsets.data(), feature.weights ? weights.data() : nullptr};
}

IdColumn GatheredColumns::Memory::draw(const Negatives& negatives, std::size_t rows,
                                       const Drawing& drawing) {
  offsets.assign(rows + 1, static_cast<std::uint32_t>(negatives.count));
  offsets[0] = 0;
  ids.resize(negatives.count);
  negatives.draw(drawing.seed, drawing.place, ids.data());
  return {ids.data(), offsets.data()};
}

// Features from `first` on whose ids lie side by side in each row. Some rows at a time; those of
// the next are fetched meanwhile.
void GatheredColumns::copy_beside(std::span<const IdFeature> beside, std::size_t first,
                                  std::span<const std::size_t> rows) {
  constexpr std::size_t kTogether = 16;
  constexpr std::size_t kLine = kCacheLine / sizeof(std::uint64_t);
  const IdFeature feature = beside.front();
  const std::size_t width = beside.size();
  const auto at = [&](std::size_t i) { return feature.ids + rows[i] * feature.stride; };
  std::array<const std::uint64_t*, kTogether> from;
  for (std::size_t begin = 0; begin < rows.size(); begin += kTogether) {
    const std::size_t count = std::min(kTogether, rows.size() - begin);
    for (std::size_t i = 0; i < count; ++i) from[i] = at(begin + i);
    for (std::size_t i = begin + count; i < std::min(begin + 2 * count, rows.size()); ++i) {
      for (std::size_t f = 0; f < width; f += kLine) __builtin_prefetch(at(i) + f);
    }
    for (std::size_t f = 0; f < width; ++f) {
      std::uint64_t* const to = memory_[first + f].ids.data() + begin;
      for (std::size_t i = 0; i < count; ++i) to[i] = from[i][f];
    }
  }
}

std::span<const IdColumn> GatheredColumns::gather(std::span<const IdFeature> features,
                                                  std::span<const std::size_t> rows,
                                                  const Drawing& drawing) {
  memory_.resize(features.size());
  columns_.resize(features.size());
  for (std::size_t f = 0; f < features.size();) {
    if (features[f].negatives.count > 0) {
      columns_[f] = memory_[f].draw(features[f].negatives, rows.size(), drawing);
      ++f;
      continue;
    }
    if (features[f].offsets) {
      columns_[f] = memory_[f].bags(features[f], rows);
      ++f;
      continue;
    }
    const std::size_t first = f;
    do {
      memory_[f].ids.resize(rows.size());
      columns_[f] = {memory_[f].ids.data()};
      ++f;
    } while (f < features.size() && lie_side_by_side(features[f - 1], features[f]));
    copy_beside(features.subspan(first, f - first), first, rows);
  }
  return columns_;
}

}  // namespace leashed
