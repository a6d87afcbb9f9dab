#include "leashed/cluster/lane_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/cluster/mode_messages.h"
#include "leashed/cluster/row_messages.h"

namespace leashed {

LaneRows::LaneRows(RowHolder& holder, std::atomic<std::uint64_t>& bytes)
    : holder_(holder), bytes_(bytes) {
  for (const auto& table : holder.tables()) dims_.push_back(table->dim());
  ids_.resize(dims_.size());
  values_.resize(dims_.size());
}

void LaneRows::reach(AlignedArray<float>& memory, std::size_t floats) {
  if (memory.size() >= floats) return;
  const std::size_t before = memory.size();
  memory = AlignedArray<float>(floats + floats / 8);
  bytes_.fetch_add((memory.size() - before) * sizeof(float), kRelaxed);
}

std::span<std::byte> LaneRows::place(Of& of, std::size_t length) {
  if (of.asked.size() < length) {
    const std::size_t before = of.asked.size();
    of.asked = AlignedArray<std::byte>(length + length / 8);
    bytes_.fetch_add(of.asked.size() - before, kRelaxed);
  }
  return {of.asked.data(), length};
}

std::span<const std::byte> LaneRows::look_up(Of& of, std::size_t begin, std::size_t length,
                                             bool trains, bool admits) {
  const std::size_t tables = dims_.size();
  const std::size_t counts = begin + sizeof(LookupHead);
  const std::size_t first = counts + (tables + tables % 2) * sizeof(std::uint32_t);
  LookupHead head;
  if (length < first) throw Error("a lookup without its counts");
  std::memcpy(&head, of.asked.data() + begin, sizeof head);
  if (head.trains != (trains ? 1u : 0u) || head.tables != tables || head.pools + head.wants != 0) {
    throw Error("a lookup of other tables than this server has, or for another use");
  }
  const auto* ids = reinterpret_cast<const std::uint64_t*>(of.asked.data() + first);
  const std::uint64_t there = (length - first) / sizeof(std::uint64_t);
  std::uint64_t all = 0, floats = 0;
  for (std::size_t t = 0; t < tables; ++t) {
    std::uint32_t count = 0;
    std::memcpy(&count, of.asked.data() + counts + t * sizeof count, sizeof count);
    all += count;
    floats += std::uint64_t{count} * dims_[t];
    if (all > there) throw Error("a lookup with other ids than it counts");
    ids_[t] = {ids, count};
    ids += count;
  }
  if (length != first + all * sizeof(std::uint64_t)) {
    throw Error("a lookup with other ids than it counts");
  }
  if (floats * sizeof(float) > kModeLimits[kRows]) throw Error("a lookup of too many rows");
  if (!of.reply || of.reply->size() < floats) {
    bytes_.fetch_sub(of.reply ? of.reply->size() * sizeof(float) : 0, kRelaxed);
    of.reply = nullptr;
    of.reply = std::make_shared<AlignedArray<float>>(floats + floats / 8);
    bytes_.fetch_add(of.reply->size() * sizeof(float), kRelaxed);
  }
  float* value = of.reply->data();  // what was sent from there has gone
  const std::span<const std::byte> reply = std::as_bytes(std::span(value, floats));
  for (std::size_t t = 0; t < tables; ++t) {
    values_[t] = value;
    value += ids_[t].size() * dims_[t];
  }
  if (trains) let_go(of);
  const bool holds = trains && admits;
  holds ? holder_.pull(ids_, of.keys, values_) : holder_.look(ids_, values_);
  if (trains) {
    of.there = true;
    of.floats = floats;
  }
  looked_up_ = all;
  moved_.fetch_add(2 * kFrameHeader + length + floats * sizeof(float), kRelaxed);
  least_.fetch_add(all * sizeof(std::uint64_t) + (trains ? 2 : 1) * floats * sizeof(float),
                   kRelaxed);
  return reply;
}

LaneRows::Moved LaneRows::moved() const { return {moved_.load(kRelaxed), least_.load(kRelaxed)}; }

void LaneRows::take(Of& of, const float* pushed, RowKeys& keys) {
  std::size_t floats = 0;
  for (std::size_t t = 0; t < dims_.size(); ++t) {
    floats += holder_.gradients_of(t, of.keys.parts[t].count);
  }
  reach(of.gradients, floats);
  moved_.fetch_add(of.floats * sizeof(float), kRelaxed);
  std::swap(keys, of.keys);  // nothing throws from here on: whoever has them lets them go
  float* to = of.gradients.data();
  for (std::size_t t = 0; t < dims_.size(); ++t) {
    const std::size_t stride = holder_.tables()[t]->gradient_stride();
    const std::size_t count = keys.parts[t].count;
    for (std::size_t i = 0; i < count; ++i, pushed += dims_[t]) {
      std::copy_n(pushed, dims_[t], to + i * stride);
      std::fill_n(to + i * stride + dims_[t], stride - dims_[t], 0.0f);
    }
    to += holder_.gradients_of(t, count);
  }
}

void LaneRows::let_go(Of& of) {
  holder_.release(of.keys);
  of.there = of.given = false;
  of.floats = 0;
}

void LaneRows::let_go(Of& of, RowKeys& keys) {
  holder_.release(keys);
  if (of.keys.parts.empty()) std::swap(keys, of.keys);
}

}  // namespace leashed
