#include "leashed/data/row_block.h"

#include <algorithm>

namespace leashed {
namespace {

template <class T>
void copy_rows(const std::vector<T>& from, std::vector<T>& to, std::size_t begin, std::size_t end,
               std::size_t width) {
  to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(begin * width),
            from.begin() + static_cast<std::ptrdiff_t>(end * width));
}

}  // namespace

std::size_t RowLayout::single_ids() const {
  return static_cast<std::size_t>(std::count(bags.begin(), bags.end(), false));
}

RowBlock::RowBlock(const RowLayout& layout)
    : bags(layout.bags.size() - layout.single_ids()),
      layout_(layout),
      single_ids_(layout.single_ids()) {}

void RowBlock::resize(std::size_t rows) {
  rows_ = rows;
  x.resize(rows * layout_.numbers);
  ids.resize(rows * single_ids_);
  if (layout_.classes) {
    labels.resize(rows);
  } else {
    values.resize(rows * layout_.values);
  }
  if (layout_.weights) weights.resize(rows);
}

void RowBlock::clear() {
  resize(0);
  for (Bag& bag : bags) {
    bag.ids.clear();
    bag.weights.clear();
    bag.offsets.resize(1);
  }
}

void RowBlock::append(const RowBlock& from, std::size_t begin, std::size_t end) {
  copy_rows(from.x, x, begin, end, layout_.numbers);
  copy_rows(from.ids, ids, begin, end, single_ids_);
  if (layout_.classes) {
    copy_rows(from.labels, labels, begin, end, 1);
  } else {
    copy_rows(from.values, values, begin, end, layout_.values);
  }
  if (layout_.weights) copy_rows(from.weights, weights, begin, end, 1);
  for (std::size_t b = 0; b < bags.size(); ++b) {
    const Bag& source = from.bags[b];
    const std::int64_t first = source.offsets[begin];
    const auto shift = static_cast<std::int64_t>(bags[b].ids.size()) - first;
    const auto from_id = static_cast<std::size_t>(first);
    const auto to_id = static_cast<std::size_t>(source.offsets[end]);
    copy_rows(source.ids, bags[b].ids, from_id, to_id, 1);
    if (layout_.id_weights) copy_rows(source.weights, bags[b].weights, from_id, to_id, 1);
    for (std::size_t i = begin; i < end; ++i) {
      bags[b].offsets.push_back(source.offsets[i + 1] + shift);
    }
  }
  rows_ += end - begin;
}

void RowBlock::features(std::vector<IdFeature>& to) const {
  to.clear();
  std::size_t single = 0, bag = 0;
  for (const bool any : layout_.bags) {
    if (any) {
      const float* const of_ids = layout_.id_weights ? bags[bag].weights.data() : nullptr;
      to.push_back({bags[bag].ids.data(), 1, bags[bag].offsets.data(), of_ids});
      ++bag;
    } else {
      to.push_back({ids.data() + single++, single_ids_});
    }
  }
}

Targets RowBlock::targets() const {
  Targets targets =
      layout_.classes ? Targets(labels.data()) : Targets(values.data(), layout_.values);
  if (layout_.weights) targets.weights = weights.data();
  return targets;
}

}  // namespace leashed
