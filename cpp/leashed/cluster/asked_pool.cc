#include "leashed/cluster/asked_pool.h"

#include <algorithm>
#include <cstring>

#include "leashed/cluster/pool_choice.h"
#include "leashed/cluster/row_memory.h"
#include "leashed/cluster/row_messages.h"

namespace leashed {
namespace {

constexpr std::uint32_t kNobody = ~std::uint32_t{0};

void put_numbers(const std::vector<std::uint32_t>& numbers, std::size_t width,
                 std::vector<std::byte>& to) {
  const std::size_t before = to.size();
  to.resize(before + numbers.size() * width);
  std::byte* at = to.data() + before;
  if (width == sizeof(std::uint32_t)) {
    std::memcpy(at, numbers.data(), numbers.size() * width);
    return;
  }
  for (const std::uint32_t number : numbers) {
    const auto narrow = static_cast<std::uint16_t>(number);
    std::memcpy(at, &narrow, sizeof narrow);
    at += sizeof narrow;
  }
}

// Whether of two entries' floats the second is the largest, as one process finds it.
bool is_larger(float one, std::uint32_t entry, float other, std::uint32_t other_entry) {
  const bool none = one != one, other_none = other != other;
  if (none || other_none) return other_none && (!none || other_entry < entry);
  return other > one || (other == one && other_entry < entry);
}

}  // namespace

void AskedPool::find(const IdColumn& column, std::size_t size, const std::uint32_t* entries,
                     const Spot* spots, std::size_t first) {
  first_ = first;
  count_ = 0;
  entries_ = size > 0 ? column.end(size - 1) : 0;
  weighted_ = column.weights != nullptr;
  shares_.clear();
  for (Part& part : parts_) {
    part.which.clear();
    part.counts.clear();
    part.places.clear();
    part.weights.clear();
    part.entries.clear();
  }
  places_.resize(size);
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t begin = column.begin(i), end = column.end(i);
    if (begin == end) continue;
    const auto pool = static_cast<std::uint32_t>(count_++);
    places_[i] = static_cast<std::uint32_t>(first) + pool;
    if (whole) {
      parts_[*whole].counts.push_back(static_cast<std::uint32_t>(end - begin));
      continue;
    }
    if (pooling_ == Pooling::mean) shares_.push_back(1.0f / static_cast<float>(end - begin));
    for (std::size_t e = begin; e < end; ++e) {
      const Spot spot = spots[entries[e]];
      Part& part = parts_[spot.server];
      if (part.which.empty() || part.which.back() != pool) {
        part.which.push_back(pool);
        part.counts.push_back(0);
      }
      ++part.counts.back();
      part.places.push_back(spot.place);
      if (weighted_) part.weights.push_back(column.weights[e]);
      if (pooling_ == Pooling::max) part.entries.push_back(static_cast<std::uint32_t>(e));
    }
  }
  if (whole) {
    Part& part = parts_[*whole];
    part.places.assign(entries, entries + entries_);
    if (weighted_) part.weights.assign(column.weights, column.weights + entries_);
  }
  for (std::size_t i = 0; i < size; ++i) {
    if (column.begin(i) == column.end(i)) places_[i] = static_cast<std::uint32_t>(first + count_);
  }
}

std::size_t AskedPool::winner_bytes_of(std::size_t server) const {
  return asks_for_winners() ? whole_words(floats_of(server) * parts_[server].width, sizeof(float))
                            : 0;
}

void AskedPool::tell(std::size_t server, std::size_t number, std::size_t ids,
                     std::vector<std::byte>& to) {
  Part& part = parts_[server];
  part.width = ids <= kNarrowPlaces && std::ranges::max(part.counts) < kNarrowPlaces ? 2 : 4;
  // Of several servers none has all ids of an example: means are made of sums.
  const Pooling pooling = !whole && pooling_ == Pooling::mean ? Pooling::sum : pooling_;
  const PoolHead head{static_cast<std::uint32_t>(number),
                      static_cast<std::uint8_t>(pooling),
                      static_cast<std::uint8_t>(part.width),
                      static_cast<std::uint8_t>(weighted_),
                      static_cast<std::uint8_t>(asks_for_winners()),
                      static_cast<std::uint32_t>(part.counts.size()),
                      static_cast<std::uint32_t>(part.places.size())};
  const auto bytes = std::as_bytes(std::span(&head, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
  put_numbers(part.counts, part.width, to);
  put_numbers(part.places, part.width, to);
  to.resize(whole_words(to.size(), sizeof(float)));
  const auto weights = std::as_bytes(std::span(part.weights));
  to.insert(to.end(), weights.begin(), weights.end());
  to.resize(whole_words(to.size(), sizeof(std::uint64_t)));
}

std::uint32_t AskedPool::winner(const Part& part, const std::byte* winners, std::size_t i) const {
  std::uint32_t which = 0;
  std::memcpy(&which, winners + i * part.width, part.width);  // (little-endian)
  return which;
}

bool AskedPool::holds(std::size_t server, const std::byte* winners) const {
  if (!asks_for_winners()) return true;
  const Part& part = parts_[server];
  for (std::size_t i = 0; i < part.counts.size() * dim_; ++i) {
    if (winner(part, winners, i) >= part.counts[i / dim_]) return false;
  }
  return true;
}

float* AskedPool::pools() {
  reach_floats(pools_, count_ * dim_);
  return pools_.data();
}

void AskedPool::join(std::span<const Reply> replies) {
  pooling_ == Pooling::max ? take_largest(replies) : add_sums(replies);
}

void AskedPool::add_sums(std::span<const Reply> replies) {
  won_.assign(count_, kNobody);
  for (std::size_t s = 0; s < parts_.size(); ++s) {
    const float* from = replies[s].floats;
    for (const std::uint32_t pool : parts_[s].which) {
      float* const to = pools_.data() + pool * dim_;
      if (won_[pool] == kNobody) {
        std::copy_n(from, dim_, to);
      } else {
        for (std::size_t k = 0; k < dim_; ++k) to[k] += from[k];
      }
      won_[pool] = static_cast<std::uint32_t>(s);
      from += dim_;
    }
  }
  for (std::size_t pool = 0; pool < shares_.size(); ++pool) {
    for (std::size_t k = 0; k < dim_; ++k) pools_[pool * dim_ + k] *= shares_[pool];
  }
}

void AskedPool::take_largest(std::span<const Reply> replies) {
  won_.assign(count_ * dim_, kNobody);
  best_.resize(count_ * dim_);
  for (std::size_t s = 0; s < parts_.size(); ++s) {
    const Part& part = parts_[s];
    std::size_t first = 0;  // of the pool's entries here
    for (std::size_t n = 0; n < part.which.size(); first += part.counts[n++]) {
      for (std::size_t k = 0; k < dim_; ++k) {
        const std::size_t i = n * dim_ + k, at = part.which[n] * dim_ + k;
        const float value = replies[s].floats[i];
        const std::uint32_t entry = part.entries[first + winner(part, replies[s].winners, i)];
        if (won_[at] != kNobody && !is_larger(pools_[at], best_[at], value, entry)) continue;
        pools_[at] = value;
        best_[at] = entry;
        won_[at] = static_cast<std::uint32_t>(s);
      }
    }
  }
}

float* AskedPool::d_pools_of(std::size_t server) {
  reach_floats(parts_[server].d_pools, floats_of(server));
  return parts_[server].d_pools.data();
}

void AskedPool::split(const float* d_pools) {
  for (std::size_t s = 0; s < parts_.size(); ++s) {
    Part& part = parts_[s];
    float* to = part.d_pools.data();
    for (const std::uint32_t pool : part.which) {
      const float* const from = d_pools + pool * dim_;
      const float share = shares_.empty() ? 1.0f : shares_[pool];
      for (std::size_t k = 0; k < dim_; ++k) {
        const bool its_own = pooling_ != Pooling::max || won_[pool * dim_ + k] == s;
        to[k] = its_own ? share * from[k] : 0.0f;
      }
      to += dim_;
    }
  }
}

}  // namespace leashed
