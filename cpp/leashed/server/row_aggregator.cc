#include "leashed/server/row_aggregator.h"

#include <algorithm>
#include <utility>

namespace leashed {

void RowAggregator::hold(std::uint32_t slot, RowKeys& keys, AlignedArray<float>& gradients) {
  if (slot >= slots_.size()) slots_.resize(std::size_t{slot} + 1);
  std::swap(slots_[slot].keys, keys);
  std::swap(slots_[slot].gradients, gradients);
}

void RowAggregator::visit(Archive& archive, std::uint32_t slot) {
  if (slot >= slots_.size()) slots_.resize(std::size_t{slot} + 1);
  Slot& of = slots_[slot];
  holder_.visit(archive, of.keys);
  std::size_t floats = 0;
  for (std::size_t table = 0; table < of.keys.parts.size(); ++table) {
    floats += holder_.gradients_of(table, of.keys.parts[table].count);
  }
  if (archive.reads()) of.gradients = AlignedArray<float>(floats);
  archive.floats(of.gradients.data(), floats);
}

RowPublication RowAggregator::apply(std::span<const Aggregator::Part> parts, double divisor,
                                    std::uint64_t t, bool keeps_divisor) {
  if (parts.size() == 1 && parts[0].weight == (by_containing_ ? 1 : divisor)) {
    Slot& slot = slots_[parts[0].slot];
    return holder_.push(slot.keys, slot.gradients.data(), t);
  }
  for (const Aggregator::Part& part : parts) {
    slots_[part.slot].row = slots_[part.slot].gradient = 0;
  }
  RowPublication result;
  for (std::size_t table = 0; table < holder_.tables().size(); ++table) {
    result.add(apply_table(table, parts, divisor, t, keeps_divisor));
  }
  for (const Aggregator::Part& part : parts) drop(keys(part.slot));
  return result;
}

RowPublication RowAggregator::apply_table(std::size_t table,
                                          std::span<const Aggregator::Part> parts, double divisor,
                                          std::uint64_t t, bool keeps_divisor) {
  Table& of = *holder_.tables()[table];
  const std::size_t stride = of.gradient_stride();
  std::size_t most = 0;
  for (const Aggregator::Part& part : parts) most += slots_[part.slot].keys.parts[table].count;
  combiner_.begin(most, distinct_);
  folded_.rows.clear();
  folded_.versions.clear();
  folded_.missed = {};
  added_.clear();
  left_out_.clear();
  damping_.clear();
  if (sums_.size() < most * stride) sums_ = AlignedArray<float>(most * stride);
  for (const Aggregator::Part& part : parts) add(table, slots_[part.slot], part.weight);
  for (std::size_t i = 0; i < added_.size(); ++i) {
    if (added_[i] == 0) {
      folded_.rows[i] = IdIndex::kNone;
      continue;
    }
    const double pushes = by_containing_  ? added_[i]
                          : keeps_divisor ? divisor
                                          : divisor - left_out_[i];
    // The inverse of less may be no float; what is applied is next to nothing either way.
    damping_[i] = std::max(damping_[i] / static_cast<float>(added_[i]), 0x1p-100f);
    const float share = 1 / (static_cast<float>(pushes) * damping_[i]);
    for (std::size_t j = 0; j < stride; ++j) sums_[i * stride + j] *= share;
  }
  return holder_.push_weighed(table, folded_, sums_.data(), damping_.data(), t);
}

void RowAggregator::add(std::size_t table, Slot& slot, double weight) {
  Table& of = *holder_.tables()[table];
  const std::size_t stride = of.gradient_stride(), count = slot.keys.parts[table].count;
  holder_.locate(slot.keys, table, slot.row, pushed_);
  const float* gradient = slot.gradients.data() + slot.gradient;
  slot.row += count;
  slot.gradient += holder_.gradients_of(table, count);
  factors_.resize(count);
  folded_.missed.add(pushed_.missed);
  of.weigh(pushed_, factors_.data(), folded_.missed);
  for (std::size_t i = 0; i < count; ++i, gradient += stride) {
    if (pushed_.rows[i] == IdIndex::kNone) continue;
    const std::uint64_t row = pushed_.rows[i];
    std::uint32_t place = 0;
    combiner_.add(&row, 1, &place);
    float* const sum = sums_.data() + place * stride;
    if (place == added_.size()) {
      folded_.rows.push_back(pushed_.rows[i]);
      folded_.versions.push_back(pushed_.versions[i]);
      added_.push_back(0);
      left_out_.push_back(0);
      damping_.push_back(0);
    }
    if (factors_[i] == 0) {
      ++left_out_[place];
      continue;
    }
    damping_[place] += factors_[i];
    const auto scale = static_cast<float>(weight * factors_[i]);
    if (added_[place]++ == 0) {
      folded_.versions[place] = pushed_.versions[i];
      for (std::size_t j = 0; j < stride; ++j) sum[j] = scale * gradient[j];
      continue;
    }
    ++folded_.missed.folded;
    std::uint32_t& stalest = folded_.versions[place];
    if (static_cast<std::int32_t>(pushed_.versions[i] - stalest) < 0) {
      stalest = pushed_.versions[i];
    }
    for (std::size_t j = 0; j < stride; ++j) sum[j] += scale * gradient[j];
  }
}

}  // namespace leashed
