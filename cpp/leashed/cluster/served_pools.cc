#include "leashed/cluster/served_pools.h"

#include <algorithm>
#include <cstring>

#include "leashed/base/error.h"
#include "leashed/cluster/row_memory.h"
#include "leashed/cluster/row_messages.h"

namespace leashed {
namespace {

// n numbers of so many bytes each.
void widen(const std::byte* from, std::size_t width, std::size_t n, std::uint32_t* to) {
  if (width == sizeof *to) {
    std::memcpy(to, from, n * width);
    return;
  }
  for (std::size_t i = 0; i < n; ++i) {
    std::uint16_t narrow;
    std::memcpy(&narrow, from + i * sizeof narrow, sizeof narrow);
    to[i] = narrow;
  }
}

constexpr std::size_t kSmall = 4096;  // numbers that nobody misses

// So many; the memory of many more is let go.
template <class T>
void fit(std::vector<T>& numbers, std::size_t n) {
  if (numbers.capacity() > std::max(4 * n, kSmall)) numbers = std::vector<T>();
  numbers.resize(n);
}

template <class T>
std::uint64_t bytes_of(const std::vector<T>& numbers) {
  return numbers.capacity() * sizeof(T);
}

}  // namespace

PooledRows ServedPools::Pool::rows() {
  return {pooling,
          dim,
          1,
          {nullptr, offsets.data(), weighted ? weights.data() : nullptr},
          places.data(),
          0,
          examples(),
          largest.data()};
}

void ServedPools::read(std::span<const std::byte> bytes, std::size_t pools,
                       std::span<const std::uint32_t> counts, std::span<const std::size_t> dims) {
  floats_ = bytes_ = 0;
  try {
    if (pools > kPools) throw Error("a lookup of too many pools");
    pools_.resize(std::min(pools, bytes.size() / sizeof(PoolHead) + 1));
    if (pools_.capacity() > 4 * pools + 16) pools_.shrink_to_fit();
    if (pools == 0) fit(pointers_, 0);
    if (pools_.size() < pools) throw Error("a lookup without its pools");
    read_each(bytes, counts, dims);
  } catch (...) {
    *this = {};
    throw;
  }
}

void ServedPools::read_each(std::span<const std::byte> bytes, std::span<const std::uint32_t> counts,
                            std::span<const std::size_t> dims) {
  std::uint64_t floats = 0, winners = 0;
  for (Pool& pool : pools_) {
    PoolHead head;
    if (bytes.size() < sizeof head) throw Error("a lookup without its pools");
    std::memcpy(&head, bytes.data(), sizeof head);
    const bool known = head.pooling <= static_cast<std::uint8_t>(Pooling::max) &&
                       (head.width == 2 || head.width == 4) && head.weighted <= 1 &&
                       head.winners <= 1 && head.table < counts.size();
    if (!known || head.examples == 0 || head.entries < head.examples) {
      throw Error("a pool that is none");
    }
    if (head.winners == 1 && head.pooling != static_cast<std::uint8_t>(Pooling::max)) {
      throw Error("winners are wanted of what is no maximum");
    }
    const std::uint64_t numbers = std::uint64_t{head.examples} + head.entries;
    const std::uint64_t weights = whole_words(sizeof head + numbers * head.width, sizeof(float));
    const std::uint64_t length = whole_words(
        weights + (head.weighted == 1 ? head.entries * std::uint64_t{sizeof(float)} : 0), 8);
    if (bytes.size() < length) throw Error("a pool without its entries");
    pool.table = head.table;
    pool.dim = dims[head.table];
    pool.width = head.width;
    pool.pooling = static_cast<Pooling>(head.pooling);
    pool.weighted = head.weighted == 1;
    pool.winners = head.winners == 1;
    fit(pool.offsets, head.examples + std::size_t{1});
    pool.offsets[0] = 0;
    const std::byte* const from = bytes.data() + sizeof head;
    widen(from, head.width, head.examples, pool.offsets.data() + 1);
    std::uint64_t entries = 0;
    for (std::size_t i = 1; i <= head.examples; ++i) {
      if (pool.offsets[i] == 0) throw Error("a pool of nothing");
      entries += pool.offsets[i];
      if (entries > head.entries) throw Error("a pool of other entries than it counts");
      pool.offsets[i] = static_cast<std::uint32_t>(entries);
    }
    if (entries != head.entries) throw Error("a pool of other entries than it counts");
    fit(pool.places, head.entries);
    widen(from + head.examples * std::size_t{head.width}, head.width, head.entries,
          pool.places.data());
    if (std::ranges::max(pool.places) >= counts[head.table]) {
      throw Error("a pool of rows that are not looked up");
    }
    fit(pool.weights, pool.weighted ? head.entries : 0);
    if (pool.weighted) {
      std::memcpy(pool.weights.data(), bytes.data() + weights, head.entries * sizeof(float));
    }
    const std::uint64_t own = std::uint64_t{head.examples} * pool.dim;
    floats += own;
    if (pool.winners) winners += whole_words(own * head.width, sizeof(float));
    bytes = bytes.subspan(length);
  }
  if (!bytes.empty()) throw Error("a lookup with more than it says");
  floats_ = floats;
  bytes_ = floats * sizeof(float) + winners;
}

bool ServedPools::of(std::size_t table) const {
  return std::ranges::count(pools_, table, &Pool::table) > 0;
}

void ServedPools::make(std::span<float* const> rows, std::byte* reply) {
  const EmbeddingKernels& kernels = embedding_kernels(default_isa());
  std::byte* winners = reply + floats_ * sizeof(float);
  auto* floats = reinterpret_cast<float*>(reply);
  for (Pool& pool : pools_) {
    const std::size_t own = pool.examples() * pool.dim;
    fit(pool.largest, pool.pooling == Pooling::max ? own : 0);
    fit(pointers_, std::size_t{std::ranges::max(pool.places)} + 1);
    for (std::size_t i = 0; i < pointers_.size(); ++i) {
      pointers_[i] = rows[pool.table] + i * pool.dim;
    }
    kernels.pool_racy(pool.rows(), pointers_.data(), floats, pool.dim);
    floats += own;
    if (!pool.winners) continue;
    for (std::size_t i = 0; i < own; ++i) {
      const std::uint32_t which = pool.largest[i] - pool.offsets[i / pool.dim];
      std::memcpy(winners + i * pool.width, &which, pool.width);  // (little-endian)
    }
    const std::size_t whole = whole_words(own * pool.width, sizeof(float));
    std::memset(winners + own * pool.width, 0, whole - own * pool.width);
    winners += whole;
  }
}

void ServedPools::add(const float* d_pools, std::size_t table, float* gradient) {
  const EmbeddingKernels& kernels = embedding_kernels(default_isa());
  for (Pool& pool : pools_) {
    if (pool.table == table) {
      kernels.scatter(pool.rows(), d_pools, pool.dim, gradient, pool.dim);
    }
    d_pools += pool.examples() * pool.dim;
  }
}

std::uint64_t ServedPools::memory() const noexcept {
  std::uint64_t sum = bytes_of(pools_) + bytes_of(pointers_);
  for (const Pool& pool : pools_) {
    sum += bytes_of(pool.offsets) + bytes_of(pool.places) + bytes_of(pool.largest) +
           bytes_of(pool.weights);
  }
  return sum;
}

}  // namespace leashed
