// Pools that an embedding server makes of its rows for a lookup (cluster/row_messages.h), and takes
// the gradients of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "leashed/kernels/embedding.h"

namespace leashed {

class ServedPools {
 public:
  // What follows the ids of a lookup: so many pools, of tables with so many ids and floats a row.
  // Throws Error where they do not fit, and has none then.
  void read(std::span<const std::byte> bytes, std::size_t pools,
            std::span<const std::uint32_t> counts, std::span<const std::size_t> dims);
  bool empty() const { return pools_.empty(); }
  // Of all of them.
  std::uint64_t floats() const { return floats_; }
  // That they take in a reply, with their winners.
  std::uint64_t bytes() const { return bytes_; }
  // Whether any is of the table.
  bool of(std::size_t table) const;

  // Those of the tables' rows, [table] → the first of them, in the order of ids.
  void make(std::span<float* const> rows, std::byte* reply);
  // Adds what their gradients come to for a table's rows, [count][dim].
  void add(const float* d_pools, std::size_t table, float* gradient);
  // Bytes that it holds, whatever for.
  std::uint64_t memory() const noexcept;

 private:
  struct Pool {
    std::size_t table, dim, width;
    Pooling pooling;
    bool weighted, winners;
    std::vector<std::uint32_t> offsets, places, largest;
    std::vector<float> weights;

    std::size_t examples() const { return offsets.size() - 1; }
    PooledRows rows();
  };

  void read_each(std::span<const std::byte> bytes, std::span<const std::uint32_t> counts,
                 std::span<const std::size_t> dims);

  // Those of now, in the memory of those before them, as far as it is not much more.
  std::vector<Pool> pools_;
  std::uint64_t floats_ = 0, bytes_ = 0;
  std::vector<const float*> pointers_;
};

}  // namespace leashed
